"""`spark-submit analytics/jobs/daily_revenue.py --out DIR`: the mart as Parquet, and how far it was read."""

import argparse
import json

from analytics.jobs import arguments
from analytics.marts.daily_revenue import daily_revenue
from analytics.offsets import LogUnreachable
from analytics.replay import replay
from analytics.session import JarsMissing, open_session
from analytics.staging import orders

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="daily_revenue", description="Revenue by day, country and currency."
    )
    parser.add_argument("--out", type=arguments.writable_folder, required=True, help="folder to (re)place")
    given, settings = parser.parse_args(), arguments.settings_or_exit(parser)
    with arguments.failures_said(JarsMissing, LogUnreachable):
        arguments.say("starting Spark")
        log = replay(open_session("daily revenue", settings), settings.kafka, ["order.events"]).kept()
        arguments.say("reading the log")
        mart = daily_revenue(orders.confirmed(log), orders.cancelled(log), orders.returned(log))
        with arguments.replaced(given.out) as folder:
            mart.coalesce(1).sort("day", "country").write.parquet(str(folder))
            aside = [row.asDict() for row in log.set_aside.collect()]
            (folder / "_log.json").write_text(json.dumps({"ends": log.ends, "set_aside": aside}), "utf-8")
    print(f"{given.out}: read to {json.dumps(log.ends)}, {len(aside)} records set aside")
