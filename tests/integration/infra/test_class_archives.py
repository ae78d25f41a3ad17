"""The JVMs of Kafka and Spark map the archives of their classes: nobody would see that they start slowly again."""

from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from infra.base.ports import listening
from infra.stack.embedded.child import Child
from infra.stack.embedded.java import class_archive, jars_folder, spark_archive
from infra.stack.embedded.kafka import MIRROR, NODE, lone_broker, prepare_mirror
from infra.stack.mirror_settings import MirrorPlace
from tests.ports import free_ports

SECONDS = 120.0


def mapped(pid: int) -> set[str]:
    return {Path(region.path).name for region in psutil.Process(pid).memory_maps()}


def test_a_broker_and_a_mirror_map_their_classes(tmp_path: Path) -> None:
    jars = jars_folder("kafka")
    first, second, third = free_ports(3)
    node = lone_broker(tmp_path / "broker", first, second)
    broker = Child(node.prepare(), tmp_path / "broker.log")
    try:
        broker.wait_until(node.ready, SECONDS)
        assert class_archive(NODE, jars).file.name in mapped(broker.pid)
        copy = MirrorPlace(
            tmp_path / "mirror", third, "home", "away", node.address, node.address, ["order.events"]
        )
        mirror = Child(prepare_mirror(copy), tmp_path / "mirror.log")
        try:
            mirror.wait_until(lambda: listening(third), SECONDS)
            assert class_archive(MIRROR, jars).file.name in mapped(mirror.pid)
        finally:
            mirror.kill()
    finally:
        broker.kill()


def test_spark_maps_its_classes(spark: SparkSession) -> None:
    jvm = spark.sparkContext._gateway.proc.pid
    assert spark_archive().file.name in mapped(jvm), "`make spark` makes it"
