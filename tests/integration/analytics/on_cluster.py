"""`python -m tests.integration.analytics.on_cluster OUT MART…`: the marts' job, and its executors."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from analytics.jobs.marts import Selection, run
from analytics.session import open_session
from analytics.settings import AnalyticsSettings


def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The working directory of an executor's Python, and the file that it imports the code from."""
    import contracts.lock

    for _ in batches:
        here = {"folder": [str(Path.cwd())], "code": [contracts.lock.__file__]}
        yield pa.RecordBatch.from_pydict(here)


def main() -> None:
    out, *names = sys.argv[1:]
    settings = AnalyticsSettings.model_validate({})
    run(names, Selection(settings.kafka), Path(out), settings)
    session = open_session("marts", settings)
    folders = session.range(0, 16, 1, 8).mapInArrow(seen, "folder string, code string").distinct().collect()
    workers = session.sparkContext._jsc.sc().statusStore().executorList(True)
    executors = [workers.apply(number) for number in range(workers.size())]
    tasks = {executor.id(): executor.completedTasks() for executor in executors}
    Path(out, "seen.json").write_text(json.dumps({"places": [tuple(row) for row in folders], "tasks": tasks}))


if __name__ == "__main__":
    main()
