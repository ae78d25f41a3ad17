"""The same job on a real cluster of a master and two workers gives the same rows; both workers take part."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from analytics.jobs.marts import Selection, events, sources
from analytics.jobs.outputs import OutputReading, read_earlier, write
from analytics.marts.catalogue import MARTS
from infra.base.ports import HOST
from infra.base.settings import OFFSETS, StackSettings
from infra.log.topics import create_topics
from infra.stack.embedded.spark import NAMES, cluster_journal, master_url
from tests.integration.projection.shop_log import LogWriter, fresh_topics, history
from tests.ports import free_base

COMPARED = ("orders",)
SECONDS = 240


def daybook(home: Path, base: int, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "infra.cli", *words],
        env={**os.environ, "DAYBOOK_HOME": str(home), "DAYBOOK_PORT_BASE": str(base)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StackSettings]:
    """Started by `spark up`; only `down` stops it."""
    base = free_base()
    settings = StackSettings(home=tmp_path / "home", port_base=base)
    try:
        started = daybook(settings.home, base, "spark", "up")
        assert started.returncode == 0, started.stderr
        assert started.stdout.strip() == f"DAYBOOK_SPARK_MASTER={master_url(settings)}"
        yield settings
    finally:
        state = cluster_journal(settings).read()
        daybook(settings.home, base, "down")
    assert state is not None
    assert [member.name for member in state.members] == list(NAMES)
    assert not any(psutil.pid_exists(member.pid) for member in state.members if member.pid)
    assert daybook(settings.home, base, "spark", "status").returncode == 1


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_job_on_the_cluster_makes_the_local_rows(
    cluster: StackSettings,
    spark: SparkSession,
    kafka: str,
    tmp_path: Path,
    spark_environment: Mapping[str, str],
) -> None:
    again = daybook(cluster.home, cluster.port_base, "spark", "up")
    assert again.returncode == 1
    assert "already running" in again.stderr
    assert daybook(cluster.home, cluster.port_base, "spark", "status").returncode == 0
    create_topics(kafka)
    fresh_topics(kafka)
    LogWriter(kafka).write_all(history(12, 100), 20, spoil=0.2)

    there, here = tmp_path / "there", tmp_path / "here"
    one_setting = {"DAYBOOK_SPARK_MASTER": master_url(cluster)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.analytics.on_cluster", str(there), *COMPARED],
        env={**os.environ, **spark_environment, "DAYBOOK_KAFKA": kafka, **one_setting},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    selection = Selection(kafka)
    made_of = sources(spark, events(spark, selection), selection)
    here.mkdir()
    for name in COMPARED:
        write(
            MARTS[name].build(made_of),
            MARTS[name],
            OutputReading(ends={}),
            here,
        )
        local = DeltaTable(here / name).to_pyarrow_table()
        assert local.num_rows > 0
        assert DeltaTable(there / name).to_pyarrow_table().equals(local)
        assert read_earlier(there, name).ends

    seen = json.loads((there / "seen.json").read_text())
    busy = [worker for worker, tasks in seen["tasks"].items() if worker != "driver" and tasks]
    assert len(busy) == 2
    folders = {folder for folder, _ in seen["places"]}
    assert folders
    assert all(folder.startswith(str(cluster.home)) for folder in folders)
    assert all(code.startswith(folder) for folder, code in seen["places"]), "the code travelled with the job"


def test_a_taken_port_is_reported_and_nothing_stays(tmp_path: Path) -> None:
    base = free_base()
    with socket.socket() as taken:
        taken.bind((HOST, base + OFFSETS["spark-worker-2"]))
        settings = StackSettings(home=tmp_path, port_base=base)
        refused = daybook(tmp_path, base, "spark", "up")
    assert refused.returncode == 1
    assert "DAYBOOK_PORT_BASE" in refused.stderr
    state = cluster_journal(settings).read()
    assert state is not None
    assert "taken" in state.failure
    assert not any(member.pid for member in state.members)
