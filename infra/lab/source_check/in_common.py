"""What must agree exactly: mart, figure, the same counted from the file and from the mart."""

from infra.lab.source_check.figures import (
    ByFile,
    ByMart,
    cohorts,
    columns,
    funnel,
    ledger,
    missed,
    month,
    not_zero,
    of_customers,
    of_guests,
    reservations,
    reservations_of_mart,
    sales_by_day,
    sales_of_mart,
    sales_of_orders,
)
from infra.lab.source_check.goods_figures import (
    bought,
    counted,
    delivered,
    given_back,
    pairs,
    stayed_out,
    taken_back,
    taken_out,
)

FIGURES: tuple[tuple[str, str, ByFile, ByMart], ...] = (
    (
        "orders",
        "customer, country, time, units, gross, whether sold",
        sales_of_orders,
        columns("order_id", "customer_id", "country", "placed_at", "units", "gross", "sold"),
    ),
    ("daily_revenue", "orders, units, gross by day and country", sales_by_day, sales_of_mart),
    (
        "order_funnel",
        "placed, rejected, cancelled, expired by day",
        funnel,
        columns("day", "placed", "rejected", "cancelled", "expired"),
    ),
    ("saga_health", "reservations by day and outcome, SKUs", reservations, reservations_of_mart),
    ("stockouts", "orders, units, money by SKU", missed, columns("sku", "short", "units", "lost")),
    (
        "customers",
        "first and last day, orders, units, gross",
        of_customers,
        columns("customer_id", "first_day", "last_day", "orders", "units", "gross"),
    ),
    (
        "customer_cohorts",
        "customers, gross by cohort and month",
        cohorts,
        columns(("cohort", "months_later"), "customers", "gross"),
    ),
    ("guests", "orders, units, gross by month", of_guests, columns("month", "orders", "units", "gross")),
    (
        "customer_skus",
        "units, money by customer and SKU",
        bought,
        columns(("customer_id", "sku"), "units", "spent"),
    ),
    (
        "customer_skus",
        "units that came back, by customer and SKU",
        given_back,
        lambda rows: not_zero(columns(("customer_id", "sku"), "returned_units")(rows)),
    ),
    (
        "stock_ledger",
        "received by SKU and month",
        delivered,
        ledger(lambda row: (row["sku"], month(row["day"])), lambda row: row["received"]),
    ),
    (
        "stock_ledger",
        "adjusted by SKU and day",
        counted,
        ledger(lambda row: (row["sku"], row["day"]), lambda row: row["adjusted"]),
    ),
    ("stock_ledger", "reserved and kept, by SKU", taken_out, ledger(lambda row: (row["sku"],), stayed_out)),
    (
        "stock_ledger",
        "returned by SKU",
        taken_back,
        ledger(lambda row: (row["sku"],), lambda row: row["returned"]),
    ),
    (
        "basket_pairs",
        "baskets of one, of the other, of both",
        pairs,
        columns(("sku_a", "sku_b"), "baskets", "baskets_a", "baskets_b", "baskets_both"),
    ),
)
