-- The retail file as plain facts, and the figures that it and the marts must have in common.
--
-- The rules are those of docs/reference/real-input.md, written a second time on purpose: `infra/lab/retail` is what is
-- checked. `sheet` has the rows of the file, all as text, with their `place`; the marts are views of their names. The
-- variables `first` and `last` are the loaded days. Money is a decimal of pounds.

CREATE MACRO never_stocked(sku) AS sku IN ('84880', '22922', '85067', '21062');
CREATE MACRO month_of(day) AS date_trunc('month', day)::DATE;
CREATE MACRO is_loaded(day) AS day BETWEEN getvariable('first') AND getvariable('last');

CREATE TABLE entry AS
SELECT InvoiceNo AS number, place, upper(trim(StockCode)) AS sku, Quantity::BIGINT AS units,
    UnitPrice::DECIMAL(18, 6) AS price, InvoiceDate::TIMESTAMP AS moment,
    nullif(split_part(CustomerID, '.', 1), '') AS customer, Country AS country,
    NOT regexp_full_match(
        upper(trim(StockCode)), 'POST|DOT|[MDSB]|C2|CRUK|PADS|AMAZONFEE|BANK CHARGES|GIFT_.*') AS goods
FROM sheet;

-- An invoice's place orders invoices of the same minute. Bad debt, and invoices without goods, are left out.
CREATE TABLE invoice AS
SELECT number, min(place) AS place,
    first(customer ORDER BY place) AS customer, first(country ORDER BY place) AS country,
    CASE
        WHEN number LIKE 'C%' THEN if(first(customer ORDER BY place) IS NULL, 'guest credit', 'credit')
        WHEN first(customer ORDER BY place) IS NULL AND bool_and(price = 0) THEN 'count'
        ELSE 'sale'
    END AS kind,
    min(moment) FILTER (WHERE goods OR number NOT LIKE 'C%') AS moment
FROM entry GROUP BY number HAVING number NOT LIKE 'A%' AND bool_or(goods);

-- Goods by SKU: as they were sold, came back and were counted.
CREATE TABLE sold_line AS
SELECT number, sku, sum(units) AS units, sum(units * price) AS value, min(price) AS lowest, max(price) AS highest
FROM entry SEMI JOIN (FROM invoice WHERE kind = 'sale') USING (number) WHERE goods GROUP BY ALL;

CREATE TABLE sale AS
WITH money AS (SELECT number, sum(units * price) AS gross FROM entry GROUP BY number),
    goods AS (
        SELECT number, sum(units) AS units, count(*) AS skus, bool_or(never_stocked(sku)) AS rejected,
            list((sku, units) ORDER BY sku) AS content
        FROM sold_line GROUP BY number)
SELECT *, moment::DATE AS day, is_loaded(moment::DATE) AS loaded, number IN (FROM cancelled) AS cancelled,
    is_loaded(moment::DATE) AND NOT rejected AND number NOT IN (FROM cancelled) AS sold
FROM invoice JOIN money USING (number) JOIN goods USING (number) WHERE kind = 'sale';

CREATE TABLE credit_line AS
SELECT number, i.customer, i.moment, i.place, sku, -sum(units) AS units
FROM entry AS e JOIN invoice AS i USING (number)
WHERE kind = 'credit' AND goods AND is_loaded(i.moment::DATE) GROUP BY ALL;

CREATE TABLE stock_count AS
SELECT e.moment::DATE AS day, sku, units FROM entry AS e JOIN invoice USING (number) WHERE kind = 'count' AND goods;

-- The units that come off the shelves, by SKU and month.
CREATE TABLE taken AS
SELECT sku, month_of(day) AS month, l.units, loaded FROM sold_line AS l JOIN sale USING (number)
UNION ALL SELECT sku, month_of(day), -units, is_loaded(day) FROM stock_count WHERE units < 0;

-- By customer and SKU: the units that came back. The loader chooses to which order, not how many: those of the notes,
-- as far as the customer has bought as many and not yet returned them. What a customer has is a running sum that does
-- not fall below zero, which is the plain one less its lowest value below zero. A cancelled order comes back whole.
CREATE TABLE given_back AS
WITH moved AS (
        SELECT customer, sku, moment, place, l.units FROM sold_line AS l JOIN sale USING (number)
        WHERE loaded AND NOT rejected AND customer IS NOT NULL
        UNION ALL SELECT customer, sku, moment, place, -units FROM credit_line),
    running AS (SELECT *, sum(units) OVER (PARTITION BY customer, sku ORDER BY moment, place) AS so_far FROM moved),
    back AS (
        SELECT customer, sku, sum(greatest(units, 0)) - (sum(units) - least(min(so_far), 0)) AS units
        FROM running GROUP BY ALL
        UNION ALL SELECT customer, sku, -l.units FROM sold_line AS l JOIN sale USING (number)
        WHERE loaded AND cancelled)
SELECT customer, sku, sum(units) AS units FROM back WHERE customer IS NOT NULL GROUP BY ALL HAVING sum(units) <> 0;

-- A figure: its mart and name, the query of the file, and behind `mart` that of the mart. The first column is the key.

-- figure orders: a credit note for each cancelled order
-- The loader derives which order a note cancels: a note of that customer, time and goods must exist.
SELECT row(name), true FROM cancelled;
-- mart
WITH note AS (
    SELECT customer, moment, list((sku, units) ORDER BY sku) AS content
    FROM credit_line GROUP BY number, customer, moment)
SELECT row(order_id), count(note.moment) > 0 FROM orders LEFT JOIN sale ON number = order_id AND loaded
LEFT JOIN note ON note.customer = sale.customer AND note.moment = cancelled_at::TIMESTAMP
    AND note.content = sale.content
WHERE cancelled_at IS NOT NULL GROUP BY order_id;

-- figure customer_skus: refunds at the price paid
-- Exactly that price where there was only one.
WITH paid AS (
    SELECT customer, sku, min(lowest) AS lowest, max(highest) AS highest
    FROM sold_line JOIN sale USING (number) WHERE sold GROUP BY ALL)
SELECT row(customer_id, mart.sku), least(
    greatest(refund, returned_units * coalesce(lowest, 0)), returned_units * coalesce(highest, 0))
FROM customer_skus AS mart LEFT JOIN paid ON customer = customer_id AND paid.sku = mart.sku WHERE returned_units <> 0;
-- mart
SELECT row(customer_id, sku), refund FROM customer_skus WHERE returned_units <> 0;

-- figure orders: customer, country, time, units, gross, whether sold
SELECT row(number), customer, country, moment, units, gross, sold FROM sale WHERE loaded;
-- mart
SELECT row(order_id), customer_id, country, placed_at::TIMESTAMP, units, gross, sold FROM orders;

-- figure daily_revenue: orders, units, gross by day and country
SELECT row(day, country), count(*), sum(units), sum(gross) FROM sale WHERE sold GROUP BY day, country;
-- mart
-- Without the days on which something only came back.
SELECT row(day, country), orders, units, gross FROM daily_revenue WHERE orders <> 0 OR gross <> 0;

-- figure order_funnel: placed, rejected, cancelled, expired by day
SELECT row(day), count(*), count_if(rejected), count_if(cancelled), 0 FROM sale WHERE loaded GROUP BY day;
-- mart
SELECT row(day), placed, rejected, cancelled, expired FROM order_funnel;

-- figure saga_health: reservations by day and outcome, SKUs
SELECT row(day, if(rejected, 'rejected', 'confirmed')), count(*), sum(skus)
FROM sale WHERE loaded GROUP BY day, rejected;
-- mart
SELECT row(day, outcome), conversations, skus FROM saga_health WHERE step = 'reserve';

-- figure stockouts: orders, units, money by SKU
SELECT row(sku), count(*), sum(l.units), sum(value) FROM sold_line AS l JOIN sale USING (number)
WHERE loaded AND never_stocked(sku) GROUP BY sku;
-- mart
SELECT row(sku), short, units, lost FROM stockouts;

-- figure customers: first and last day, orders, units, gross
SELECT row(customer), min(day), max(day), count(*), sum(units), sum(gross)
FROM sale WHERE sold AND customer IS NOT NULL GROUP BY customer;
-- mart
SELECT row(customer_id), first_day, last_day, orders, units, gross FROM customers;

-- figure customer_cohorts: customers, gross by cohort and month
WITH own AS (
    SELECT customer, gross, month_of(day) AS month, month_of(min(day) OVER (PARTITION BY customer)) AS cohort
    FROM sale WHERE sold AND customer IS NOT NULL)
SELECT row(cohort, datediff('month', cohort, month)), count(DISTINCT customer), sum(gross)
FROM own GROUP BY cohort, month;
-- mart
SELECT row(cohort, months_later), customers, gross FROM customer_cohorts;

-- figure guests: orders, units, gross by month
SELECT row(month_of(day)), count(*), sum(units), sum(gross)
FROM sale WHERE sold AND customer IS NULL GROUP BY month_of(day);
-- mart
SELECT row(month), orders, units, gross FROM guests;

-- figure customer_skus: units, money by customer and SKU
SELECT row(customer, sku), sum(l.units), sum(value) FROM sold_line AS l JOIN sale USING (number)
WHERE sold AND customer IS NOT NULL GROUP BY customer, sku;
-- mart
SELECT row(customer_id, sku), units, spent FROM customer_skus;

-- figure customer_skus: units that came back, by customer and SKU
SELECT row(customer, sku), units FROM given_back;
-- mart
SELECT row(customer_id, sku), returned_units FROM customer_skus WHERE returned_units <> 0;

-- figure stock_ledger: received by SKU and month
-- The units that the whole month takes, where the loaded days take any of them.
SELECT row(sku, month), sum(units) FROM taken WHERE NOT never_stocked(sku)
GROUP BY sku, month HAVING sum(units) FILTER (WHERE loaded) > 0;
-- mart
SELECT row(sku, month_of(day)), sum(received) FROM stock_ledger GROUP BY sku, month_of(day) HAVING sum(received) <> 0;

-- figure stock_ledger: adjusted by SKU and day
SELECT row(sku, day), sum(units) FROM stock_count WHERE is_loaded(day) AND NOT never_stocked(sku)
GROUP BY sku, day HAVING sum(units) <> 0;
-- mart
SELECT row(sku, day), sum(adjusted) FROM stock_ledger GROUP BY sku, day HAVING sum(adjusted) <> 0;

-- figure stock_ledger: reserved and kept, by SKU
SELECT row(sku), sum(l.units) FROM sold_line AS l JOIN sale USING (number) WHERE sold GROUP BY sku;
-- mart
SELECT row(sku), sum(reserved - released) FROM stock_ledger GROUP BY sku HAVING sum(reserved - released) <> 0;

-- figure stock_ledger: returned by SKU
SELECT row(sku), sum(units) FROM given_back GROUP BY sku;
-- mart
SELECT row(sku), sum(returned_units) FROM stock_ledger GROUP BY sku HAVING sum(returned_units) <> 0;

-- figure basket_pairs: baskets of one, of the other, of both
-- Of the baskets and pairs that the mart counts.
WITH basket AS (SELECT number FROM sale WHERE sold AND skus <= getvariable('most_skus')),
    own AS (SELECT number, sku FROM sold_line SEMI JOIN basket USING (number)),
    often AS (
        SELECT count(*) AS baskets,
            greatest(getvariable('least_baskets'), getvariable('least_support') * count(*)) AS least
        FROM basket),
    single AS (SELECT sku, count(*) AS baskets FROM own GROUP BY sku HAVING count(*) >= (SELECT least FROM often)),
    common AS (SELECT * FROM own SEMI JOIN single USING (sku)),
    pair AS (
        SELECT a.sku AS a, b.sku AS b, count(*) AS baskets FROM common AS a JOIN common AS b USING (number)
        WHERE a.sku < b.sku GROUP BY ALL HAVING count(*) >= (SELECT least FROM often))
SELECT row(a, b), (SELECT baskets FROM often), one.baskets, other.baskets, pair.baskets
FROM pair JOIN single AS one ON one.sku = a JOIN single AS other ON other.sku = b;
-- mart
SELECT row(sku_a, sku_b), baskets, baskets_a, baskets_b, baskets_both FROM basket_pairs;
