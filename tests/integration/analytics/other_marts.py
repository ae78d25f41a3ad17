"""The marts again, by somebody else: DuckDB's SQL on the typed tables of the lake, by other ways where there are any.

Nothing here is taken from `analytics/marts`, `staging` or `evidence`: the texts of `marts.yaml` are the only source.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

Rows = list[dict[str, Any]]
MOVED = {"received": (1, 0), "returned": (1, 0), "adjusted": (1, 0), "issued": (-1, -1), "reserved": (0, 1)}
MOVED |= {"released": (0, -1)}
HELPERS = (
    """CREATE VIEW each_order AS
    WITH back AS (
        SELECT order_id, min(occurred_at) AS at, sum(units) AS units, sum(refund) AS refund, bool_or(complete) AS whole
        FROM order_returned GROUP BY order_id
    )
    SELECT placed.order_id, customer_id, placed.country, placed.currency,
        list_sum([line.quantity FOR line IN lines]) AS units, placed.gross, coalesce(back.units, 0) AS returned_units,
        coalesce(back.refund, 0) AS refund, confirmed.id IS NOT NULL AND cancelled.id IS NULL AS sold,
        coalesce(whole, false) AS returned_whole, placed.occurred_at AS placed_at,
        confirmed.occurred_at AS confirmed_at, rejected.occurred_at AS rejected_at,
        cancelled.occurred_at AS cancelled_at, expired.occurred_at AS expired_at, shipped.occurred_at AS shipped_at,
        back.at AS returned_at,
        (epoch_us(confirmed.recorded_at) - epoch_us(placed.recorded_at)) / 1e6 AS confirming_seconds
    FROM order_placed AS placed LEFT JOIN order_confirmed AS confirmed USING (order_id)
        LEFT JOIN order_rejected AS rejected USING (order_id) LEFT JOIN order_cancelled AS cancelled USING (order_id)
        LEFT JOIN order_expired AS expired USING (order_id) LEFT JOIN order_shipped AS shipped USING (order_id)
        LEFT JOIN back USING (order_id)""",
    """CREATE VIEW each_sale AS SELECT *, placed_at::DATE AS day, date_trunc('month', placed_at)::DATE AS month
    FROM each_order WHERE sold""",
    """CREATE VIEW each_line AS SELECT order_id, line.sku, sum(line.quantity) AS quantity,
        sum(line.quantity * line.unit_price) AS value
    FROM (SELECT order_id, unnest(lines) AS line FROM order_placed) GROUP BY ALL""",
    "CREATE VIEW each_movement AS "
    + " UNION ALL ".join(
        f"SELECT sku, version, occurred_at::DATE AS day, '{kind}' AS kind, quantity, {on_hand} * quantity AS on_hand, "
        f"{held} * quantity AS held FROM stock_{kind}"
        for kind, (on_hand, held) in MOVED.items()
    ),
    """CREATE VIEW each_basket AS SELECT order_id, list(DISTINCT sku ORDER BY sku) AS skus
    FROM each_line SEMI JOIN each_sale USING (order_id) GROUP BY order_id HAVING count(DISTINCT sku) <= 100""",
    """CREATE VIEW each_reply AS
    SELECT order_id, 'reserve' AS step, 0 AS number, len(reserved) AS replies, 0 AS refused, recorded_at
        FROM (FROM reservations_recorded SELECT order_id, reserved, recorded_at UNION ALL
              FROM order_confirmed SELECT order_id, reserved, recorded_at)
    UNION ALL SELECT order_id, 'reserve', 0, len(short), len(short), recorded_at FROM order_rejected
    UNION ALL SELECT order_id, 'reserve', 0, 0, 0, recorded_at FROM order_cancelled WHERE NOT confirmed
    UNION ALL SELECT order_id, 'reserve', 0, 0, 0, recorded_at FROM order_expired
    UNION ALL SELECT order_id, item.step, item.return_number, count(*), count(*) FILTER (NOT item.accepted), recorded_at
        FROM (SELECT order_id, id, recorded_at, unnest(movements) AS item FROM movements_recorded)
        GROUP BY order_id, id, item.step, item.return_number, recorded_at""",
    """CREATE VIEW each_conversation AS
    WITH began AS (
        SELECT order_id, 'reserve' AS step, 0 AS number, len(list_distinct([line.sku FOR line IN lines])) AS skus,
            occurred_at::DATE AS day, recorded_at AS first FROM order_placed
        UNION ALL SELECT order_id, 'issue', 0, len(issue), occurred_at::DATE, recorded_at FROM order_shipped
        UNION ALL SELECT order_id, 'return', return_number, len(lines), occurred_at::DATE, recorded_at
            FROM order_returned
        UNION ALL SELECT order_id, 'release', 0, len(release), occurred_at::DATE, recorded_at
            FROM (FROM order_rejected SELECT order_id, release, occurred_at, recorded_at UNION ALL
                  FROM order_cancelled SELECT order_id, release, occurred_at, recorded_at UNION ALL
                  FROM order_expired SELECT order_id, release, occurred_at, recorded_at)
    )
    SELECT began.*, count(reply.order_id) AS turns,
        (epoch_us(max(reply.recorded_at)) - epoch_us(first)) / 1e6 AS seconds,
        CASE WHEN step <> 'reserve' AND coalesce(sum(replies), 0) < skus THEN 'open'
            WHEN step <> 'reserve' AND sum(refused) > 0 THEN 'refused'
            WHEN step <> 'reserve' THEN 'done'
            WHEN order_id IN (SELECT order_id FROM order_confirmed) THEN 'confirmed'
            WHEN order_id IN (SELECT order_id FROM order_rejected) THEN 'rejected'
            WHEN order_id IN (SELECT order_id FROM order_cancelled) THEN 'cancelled'
            WHEN order_id IN (SELECT order_id FROM order_expired) THEN 'expired' ELSE 'open' END AS outcome
    FROM began LEFT JOIN each_reply AS reply USING (order_id, step, number) WHERE skus > 0
    GROUP BY order_id, step, number, skus, day, first""",
)
STATUSES = {
    "placed": "'placed'",
    "confirmed": "'confirmed'",
    "rejected": "'rejected'",
    "cancelled": "'cancelled'",
}
STATUSES |= {"expired": "'expired'", "shipped": "'shipped'"}
STATUSES |= {"returned": "CASE WHEN complete THEN 'returned' ELSE 'partly_returned' END"}
EACH_STATUS = " UNION ALL ".join(
    f"SELECT order_id, version, {status} AS status FROM order_{name}" for name, status in STATUSES.items()
)
SILENT = " UNION ALL ".join(
    f"SELECT order_id, version, NULL FROM {name}" for name in ("reservations_recorded", "movements_recorded")
)
SHARES = ("p50", 0.5), ("p95", 0.95)
LEADS = {
    "confirming_seconds": "confirming_seconds",
    "shipping_hours": "(epoch_us(shipped_at) - epoch_us(placed_at)) / 3.6e9",
    "returning_days": "(epoch_us(returned_at) - epoch_us(shipped_at)) / 8.64e10",
}
SUMS = "count(*) AS orders, sum(gross) AS gross, sum(refund) AS refund, sum(gross - refund) AS net"
MARTS: Mapping[str, str] = {
    "orders": "SELECT * FROM each_order",
    # By the orders that are still sold, where the mart adds and takes away by events.
    "daily_revenue": """
        WITH days AS (
            SELECT occurred_at::DATE AS day, country, currency FROM order_confirmed
            UNION SELECT occurred_at::DATE, country, currency FROM order_returned
        ), sold AS (SELECT day, country, currency, sum(gross) AS gross, count(*) AS orders, sum(units) AS units
            FROM each_sale GROUP BY ALL
        ), back AS (SELECT occurred_at::DATE AS day, country, currency, sum(refund) AS refund
            FROM order_returned GROUP BY ALL)
        SELECT day, country, currency, coalesce(gross, 0) AS gross, coalesce(refund, 0) AS refund,
            coalesce(gross, 0) - coalesce(refund, 0) AS net, coalesce(orders, 0) AS orders,
            coalesce(units, 0) AS units
        FROM days LEFT JOIN sold USING (day, country, currency) LEFT JOIN back USING (day, country, currency)""",
    "order_funnel": f"""
        SELECT placed_at::DATE AS day, count(*) AS placed, count(confirmed_at) AS confirmed,
            count(shipped_at) AS shipped, count(returned_at) AS returned, count(rejected_at) AS rejected,
            count(cancelled_at) AS cancelled, count(expired_at) AS expired,
            {
        ", ".join(
            f"quantile_cont({lead}, {share}) AS {name}_{label}"
            for name, lead in LEADS.items()
            for label, share in SHARES
        )
    }
        FROM each_order GROUP BY day""",
    # Each day by all movements up to it, where the mart adds up day by day.
    "stock_ledger": f"""
        SELECT days.sku, days.day, coalesce(sum(on_hand) FILTER (each.day < days.day), 0) AS opening,
            {
        ", ".join(
            f"coalesce(sum(quantity) FILTER (each.day = days.day AND kind = '{kind}'), 0) AS "
            f"{'returned_units' if kind == 'returned' else kind}"
            for kind in MOVED
        )
    },
            sum(on_hand) AS closing, sum(held) AS held
        FROM (SELECT DISTINCT sku, day FROM each_movement) AS days
            JOIN each_movement AS each ON each.sku = days.sku AND each.day <= days.day
        GROUP BY days.sku, days.day""",
    "stockouts": """
        WITH short AS (SELECT DISTINCT order_id, unnest(short) AS sku FROM order_rejected)
        SELECT sku, currency, count(*) AS short, sum(quantity) AS units, sum(value) AS lost,
            sum(gross) AS lost_with_orders, min(placed_at::DATE) AS first_day, max(placed_at::DATE) AS last_day
        FROM short JOIN each_line USING (order_id, sku) JOIN each_order USING (order_id) GROUP BY sku, currency""",
    # Scores by counting who is not better, in whole numbers.
    "customers": """
        WITH own AS (
            SELECT customer_id, currency, min(day) AS first_day, max(day) AS last_day, count(*) AS orders,
                (SELECT max(day) FROM each_sale) - max(day) AS recency_days, sum(units) AS units, sum(gross) AS gross,
                sum(refund) AS refund, sum(gross) - sum(refund) AS net
            FROM each_sale WHERE customer_id IS NOT NULL GROUP BY customer_id, currency
        )
        SELECT own.*, (5 * count(*) FILTER (o.recency_days >= own.recency_days) + count(*) - 1) // count(*) AS recency,
            (5 * count(*) FILTER (o.orders <= own.orders) + count(*) - 1) // count(*) AS frequency,
            (5 * count(*) FILTER (o.net <= own.net) + count(*) - 1) // count(*) AS monetary
        FROM own JOIN own AS o USING (currency) GROUP BY ALL""",
    "customer_cohorts": f"""
        WITH first AS (SELECT customer_id, min(month) AS cohort FROM each_sale GROUP BY customer_id)
        SELECT cohort, date_diff('month', cohort, month) AS months_later, currency,
            count(DISTINCT customer_id) AS customers, {SUMS}
        FROM each_sale JOIN first USING (customer_id) GROUP BY cohort, months_later, currency""",
    "guests": f"""
        SELECT month, currency, {SUMS}, sum(units) AS units FROM each_sale WHERE customer_id IS NULL GROUP BY ALL""",
    "customer_skus": """
        WITH back AS (SELECT order_id, item.sku, sum(item.quantity) AS units, sum(item.refund) AS refund
            FROM (SELECT order_id, unnest(lines) AS item FROM order_returned) GROUP BY ALL)
        SELECT customer_id, sku, currency, count(*) AS orders, sum(quantity) AS units, sum(value) AS spent,
            coalesce(sum(back.units), 0) AS returned_units, coalesce(sum(back.refund), 0) AS refund,
            max(day) AS last_day
        FROM each_sale JOIN each_line USING (order_id) LEFT JOIN back USING (order_id, sku)
        WHERE customer_id IS NOT NULL GROUP BY customer_id, sku, currency""",
    "basket_pairs": """
        WITH each AS (SELECT order_id, unnest(skus) AS sku FROM each_basket),
        total AS (SELECT count(*) AS baskets FROM each_basket),
        single AS (SELECT sku, count(*) AS n FROM each GROUP BY sku),
        pairs AS (SELECT a.sku AS sku_a, b.sku AS sku_b, count(*) AS n
            FROM each AS a JOIN each AS b ON a.order_id = b.order_id AND a.sku < b.sku GROUP BY ALL)
        SELECT sku_a, sku_b, baskets, a.n AS baskets_a, b.n AS baskets_b, pairs.n AS baskets_both,
            pairs.n / baskets AS support, pairs.n / a.n AS confidence_ab, pairs.n / b.n AS confidence_ba,
            pairs.n / a.n / (b.n / baskets) AS lift
        FROM pairs JOIN single AS a ON a.sku = sku_a JOIN single AS b ON b.sku = sku_b, total
        WHERE pairs.n >= 2 AND pairs.n >= 0.005 * baskets""",
    "saga_health": """
        SELECT day, step, outcome, count(*) AS conversations, sum(skus) AS skus, sum(turns) AS turns,
            NULL AS retries, quantile_cont(seconds, 0.5) FILTER (outcome <> 'open') AS seconds_p50,
            quantile_cont(seconds, 0.95) FILTER (outcome <> 'open') AS seconds_p95,
            max(seconds) FILTER (outcome <> 'open') AS seconds_max
        FROM each_conversation GROUP BY day, step, outcome""",
    # By version, where the mart goes by offset.
    "audit_orders": f"""
        WITH states AS (SELECT order_id, max(version) AS version, arg_max(status, version) FILTER (status IS NOT NULL)
            AS status FROM ({EACH_STATUS} UNION ALL {SILENT}) GROUP BY order_id)
        SELECT order_id AS entity, status, version, gross, refund, units
        FROM states JOIN each_order USING (order_id)""",
    "audit_stock": """
        SELECT sku AS entity, sum(on_hand) AS on_hand, sum(held) AS reserved, max(version) AS version
        FROM each_movement GROUP BY sku""",
}


KEYS: Mapping[str, Sequence[str]] = {
    "orders": ["order_id"],
    "daily_revenue": ["day", "country", "currency"],
    "order_funnel": ["day"],
    "stock_ledger": ["sku", "day"],
    "stockouts": ["sku", "currency"],
    "customers": ["customer_id", "currency"],
    "customer_cohorts": ["cohort", "months_later", "currency"],
    "guests": ["month", "currency"],
    "customer_skus": ["customer_id", "sku", "currency"],
    "basket_pairs": ["sku_a", "sku_b"],
    "saga_health": ["day", "step", "outcome"],
    "audit_orders": ["entity"],
    "audit_stock": ["entity"],
}


def differences(lake: duckdb.DuckDBPyConnection, out: Path) -> tuple[int, list[str]]:
    """How many cells the marts in the folder `out` have, and each that is another by the tables of `lake`."""
    for helper in HELPERS:
        lake.execute(helper)
    cells, different = 0, list[str]()
    for name, query in MARTS.items():
        mart = DeltaTable(out / name).to_pyarrow_table()
        columns = ", ".join(mart.column_names)
        again = lake.sql(f"SELECT {columns} FROM ({query})").to_arrow_table().to_pylist()
        cells += mart.num_rows * mart.num_columns
        different += _different(name, KEYS[name], mart.to_pylist(), again)
    return cells, different


def _different(name: str, keys: Sequence[str], mart: Rows, again: Rows) -> list[str]:
    ours, theirs = ({tuple(row[key] for key in keys): row for row in rows} for rows in (mart, again))
    lines = [f"{name}: {len(mart)} rows, and {len(again)}"] if len(mart) != len(again) else []
    lines += [f"{name}: {key} is in one of them alone" for key in ours.keys() ^ theirs.keys()]
    return lines + [
        f"{name}: {column} of {key} is {value}, and {theirs[key][column]}"
        for key in ours.keys() & theirs.keys()
        for column, value in ours[key].items()
        if not _equal(value, theirs[key][column])
    ]


def _equal(value: Any, other: Any) -> bool:
    """Means and quantiles may differ in their last digit, nothing else at all."""
    return (
        math.isclose(value, other, rel_tol=1e-12)
        if isinstance(value, float) and other is not None
        else value == other
    )
