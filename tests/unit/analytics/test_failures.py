"""What a user reads when a job fails, and what is never published."""

import errno
from pathlib import Path

import duckdb
import pytest
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from analytics import offsets
from analytics.events import BrokenStream, check_streams
from analytics.jobs import arguments
from analytics.jobs.arguments import exit_on_failure, spark_failure
from analytics.offsets import AheadOfLog, LogUnreachable, check_within, stable_ends
from tests.ports import free_ports
from tests.unit.analytics.test_jobs import run

STACKS = {
    "java.lang.OutOfMemoryError: Java heap space": "DAYBOOK_SPARK_MEMORY",
    "java.io.IOException: No space left on device": "DAYBOOK_SPARK_SCRATCH",
    "IllegalStateException: Cannot call methods on a stopped SparkContext.": "DAYBOOK_SPARK_MASTER",
    "TimeoutException: Cannot fetch record for offset 7 in 60000 milliseconds.": "DAYBOOK_KAFKA",
    "ConnectionRefusedError: [Errno 111] Connection refused": "DAYBOOK_SPARK_MEMORY",
    "Py4JError: py4j.reflection.TypeUtil does not exist in the JVM": "DAYBOOK_SPARK_MEMORY",
    'File "x/asyncpg/connection.py", line 1\nConnectionRefusedError: refused': "DAYBOOK_DATABASE_URL",
    "System memory 1 must be at least 2. Please increase heap size using …": "DAYBOOK_SPARK_MEMORY",
    "py4j.Py4JJavaError: a call.\n: java.lang.Error: why\n\tat org.Some": "it failed: java.lang.Error: why",
    "java.lang.IllegalStateException: a bug": "it failed: java.lang.IllegalStateException: a bug",
}


@pytest.mark.parametrize(("stack", "advice"), STACKS.items())
def test_a_failure_of_spark_names_the_setting(stack: str, advice: str) -> None:
    line = spark_failure(f"Traceback …\n{stack}", stack.splitlines()[0])
    assert advice in line
    assert "\n" not in line


@pytest.mark.parametrize(
    "failure", [DeltaError("no log\n\nStack backtrace:\n at clone3.S"), duckdb.Error("a\n ^^^")]
)
def test_what_other_readers_raise_is_one_line_and_says_what(
    failure: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit), exit_on_failure():
        raise failure
    line = capsys.readouterr().err
    assert str(failure).splitlines()[0] in line
    assert line.count("\n") == 1


def test_java_s_stack_goes_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(SystemExit, match="2"), arguments.exit_on_failure():
        raise Py4JError("java.lang.OutOfMemoryError: Java heap space\n\tat org.apache.spark.Many\n")
    (file,) = tmp_path.iterdir()
    assert "at org.apache.spark.Many" in file.read_text()
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert str(file) in printed


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "DAYBOOK_SPARK_SCRATCH"),
        (DeltaError("Failed to write: No space left on device (os error 28)"), "DAYBOOK_SPARK_SCRATCH"),
        (duckdb.IOException("IO Error: No space left on device"), "DAYBOOK_SPARK_SCRATCH"),
    ],
)
def test_a_full_disk_is_one_line_wherever_it_is_noticed(
    error: Exception,
    advice: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(SystemExit, match="2"), arguments.exit_on_failure():
        raise error
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert advice in printed


def test_a_log_that_does_not_respond_names_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "REQUEST_SECONDS", 1.0)
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(LogUnreachable, match=f"check DAYBOOK_KAFKA, {nobody}"):
        stable_ends(nobody, ["order.events"])
    with pytest.raises(AheadOfLog, match="DAYBOOK_KAFKA"):
        check_within({"order.events": {0: 4}}, {"the lake": {"order.events": {0: 5}}})


def test_an_error_of_ours_is_not_hidden() -> None:
    with pytest.raises(KeyError), arguments.exit_on_failure():
        raise KeyError("a bug")


def test_a_version_that_counts_twice_is_never_published(spark: SparkSession) -> None:
    columns = "topic string, entity string, version int"
    sound = [("order.events", "o-1", 1), ("order.events", "o-1", 2), ("inventory.events", "o-1", 1)]
    check_streams(spark.createDataFrame(sound, columns))
    with pytest.raises(BrokenStream, match="version 2 of o-1"):
        check_streams(spark.createDataFrame([*sound, ("order.events", "o-1", 2)], columns))


def test_there_is_no_lake_yet(tmp_path: Path) -> None:
    refused = run("analytics.jobs.lake", "show", "--lake", str(tmp_path))
    assert refused.returncode == 2
    assert "lake update" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_recorded_time_is_a_question_to_the_lake(tmp_path: Path) -> None:
    """It is refused before Spark starts."""
    until = ("--as-of", "2026-03-01", "--knowledge", "recorded", "--out", str(tmp_path / "out"))
    refused = run("analytics.jobs.marts", *until)
    assert refused.returncode == 2
    assert "--from lake" in refused.stderr
