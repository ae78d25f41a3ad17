"""A job under `spark-submit`: its command line sets where the job runs; the outputs are the same."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable

from analytics.session import ROOT
from infra.log.topics import create_topics

SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


@pytest.mark.full
def test_the_command_line_of_spark_submit_decides(
    kafka: str, tmp_path: Path, spark_environment: Mapping[str, str]
) -> None:
    create_topics(kafka)
    jars = ",".join(str(jar) for jar in Path(spark_environment["DAYBOOK_SPARK_JARS"]).glob("*.jar"))
    own = {
        "DAYBOOK_KAFKA": kafka,
        "DAYBOOK_SPARK_MASTER": "spark://127.0.0.1:1",  # nothing listens there: it must not be used
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
    }
    job = [str(ROOT / "analytics/jobs/marts.py"), "guests", "--out", str(tmp_path)]
    options = ["--master", "local[2]", "--driver-memory", "768m", "--conf", "spark.ui.enabled=false"]
    done = subprocess.run(
        [str(SUBMIT), *options, "--jars", jars, *job],
        env={**os.environ, **spark_environment, **own},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert DeltaTable(tmp_path / "guests").schema().fields
