"""Arguments are checked before Spark starts: a wrong one costs no seconds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from analytics import session
from analytics.settings import AnalyticsSettings
from tests.ports import free_ports


def run(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    base = {"PATH": os.environ["PATH"], "DAYBOOK_SPARK_JARS": "/nowhere"}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(
        command, env=base | environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("job", "option"),
    [("audit", "--out"), ("marts", "--out"), ("lake", "--lake"), ("held_by_hour", "--out")],
)
def test_help_teaches(job: str, option: str) -> None:
    shown = run(f"analytics.jobs.{job}", "--help")
    assert shown.returncode == 0
    assert option in shown.stdout


@pytest.mark.parametrize(
    ("job", "arguments", "reason"),
    [
        ("analytics.jobs.audit", ("--expectation", "absent.json"), "File 'absent.json' does not exist"),
        ("analytics.jobs.audit", ("--wait", "soon"), "not a valid float"),
        ("analytics.jobs.lake", ("forget",), "is not one of"),
        ("analytics.jobs.held_by_hour", (), "--out"),
        ("analytics.jobs.marts", (), "--out"),
        ("analytics.jobs.marts", ("--out", "/nowhere/else"), "can be written to"),
        ("analytics.jobs.marts", ("weekly_revenue", "--out", "x"), "there is no mart 'weekly_revenue'"),
        ("analytics.jobs.marts", ("--as-of", "march", "--out", "x"), "neither a day nor a time"),
        ("analytics.jobs.marts", ("--as-read-by", "absent", "--out", "x"), "there is no mart in"),
    ],
)
def test_a_wrong_argument_is_refused(job: str, arguments: tuple[str, ...], reason: str) -> None:
    refused = run(job, *arguments)
    assert refused.returncode == 2
    assert reason in refused.stderr
    assert "starting Spark" not in refused.stderr


def test_a_mart_takes_no_place_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "guests").mkdir()
    (tmp_path / "guests" / "list.txt").touch()
    options = ("--out", str(tmp_path), "--from", "lake")
    refused = run("analytics.jobs.marts", "guests", *options, DAYBOOK_SPARK_JARS=str(tmp_path))
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"daybook: {tmp_path}/guests is no mart of this version: remove it")


def test_a_cluster_that_does_not_respond_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "spark.jar").touch()
    (port,) = free_ports(1)
    own = {
        "DAYBOOK_SPARK_JARS": str(tmp_path),
        "DAYBOOK_SPARK_MASTER": f"spark://127.0.0.1:{port},[::1]:{port}",
    }
    refused = run("analytics.jobs.first_steps", **own)
    assert refused.returncode == 2
    (reason,) = refused.stderr.splitlines()
    assert reason.startswith("daybook: no Spark cluster responds at DAYBOOK_SPARK_MASTER, spark://127.0.0.1")


@pytest.mark.parametrize(
    ("job", "arguments"),
    [("audit", ()), ("held_by_hour", ("--out", "x")), ("lake", ("update",)), ("marts", ("--out", "x"))],
)
def test_a_log_that_does_not_respond_is_said_before_spark_starts(
    job: str, arguments: tuple[str, ...]
) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    refused = run(f"analytics.jobs.{job}", *arguments, DAYBOOK_KAFKA=address, DAYBOOK_SPARK_JARS="/nowhere")
    assert refused.returncode == 2
    assert refused.stderr == f"daybook: nothing listens at DAYBOOK_KAFKA, {address}: `./daybook status`\n"


def test_missing_jars_are_said_in_one_line() -> None:
    refused = run("analytics.jobs.first_steps")
    assert refused.returncode == 2
    assert "DAYBOOK_SPARK_JARS" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_executors_are_as_large_as_the_settings_say() -> None:
    settings = AnalyticsSettings(
        spark_master="k8s://somewhere", spark_executor_memory="2g", spark_executor_cores=3
    )
    options = session._cluster(settings)
    assert (options["spark.executor.memory"], options["spark.executor.cores"]) == ("2g", "3")
    free = settings.model_copy(update={"spark_executor_cores": None})
    assert "spark.executor.cores" not in session._cluster(free)
