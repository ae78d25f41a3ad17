"""P16: what the size of a cluster costs: partitions, clients and their threads, brokers' threads, replicas.

The brokers replicate over a listener of their own, at another address than that of the clients.
"""

from __future__ import annotations

import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from infra.base.ports import HOST
from infra.base.waiting import wait_until
from infra.identity.authority import Authority
from infra.lab.cluster.administration import DURABLE, Layout, create_assigned, read_layout
from infra.lab.cluster.cluster import BROKERS, CONTROLLERS, INTERNAL_PORTS, PORTS, Cluster, timed
from infra.log.topics import delete_topics
from infra.stack.embedded.kafka import Node
from services.kernel.log import clients
from services.kernel.log.reader import high_watermarks
from tests.bench.harness import Contender, Effort, Measured, Say, Unmeasurable, Window, interleave
from tests.ports import free_base

PARTITIONS = (100, 1_000, 4_000)
ELECTED_SECONDS = 300.0
SMALL, LARGE = 128, 1024  # bytes of a record
FEW, SOME, MANY = (1, 2), (4, 8), (12, 24)  # producers, consumers
SPREAD = 24  # partitions of the topic that they share
# network threads, I/O threads of each broker. Each step is at most a factor of two, which is what a broker accepts.
THREADS = {"1 and 2 threads": (1, 2), "2 and 4 threads": (2, 4), "4 and 8 threads": (4, 8)}
REPLICAS, FIVE = (3, 1, 5), (*BROKERS, 4, 5)
QUEUED = 20_000  # records ahead of each producer
# Kafka refuses two listeners with one port, even at two addresses.
REPLICATION_HOST, REPLICATION_PORTS = "127.0.0.2", 40
# Of a broker's listeners from its port: for users, for clients with the brokers' certificate, for replication.
DISTANCES = (0, INTERNAL_PORTS - PORTS, REPLICATION_PORTS)
MIB = 2**20


class ReplicatingApart(Cluster):
    """A cluster whose brokers replicate over a listener of their own."""

    def _node(self, number: int) -> Node:
        node = super()._node(number)
        if number in CONTROLLERS:
            return node
        before, port = node.properties(), node.port + REPLICATION_PORTS
        apart, names = f"REPLICATION://{REPLICATION_HOST}:{port}", ("listeners", "advertised.listeners")
        own = {name: f"{before[name]},{apart}" for name in names}
        own["listener.security.protocol.map"] = f"{before['listener.security.protocol.map']},REPLICATION:SSL"
        own["inter.broker.listener.name"] = "REPLICATION"
        own["listener.name.replication.ssl.client.auth"] = "required"
        own["listener.name.replication.ssl.endpoint.identification.algorithm"] = ""  # certified for 127.0.0.1
        return replace(node, own={**node.own, **own})

    def connected(self, host: str) -> int:
        """The connections that brokers have opened to brokers at this address."""
        brokers = self.nodes.keys() - CONTROLLERS
        ports = {self.nodes[number].port + more for number in brokers for more in DISTANCES}
        return sum(
            link.raddr[0].endswith(host) and link.raddr[1] in ports  # Java's are IPv6 addresses
            for number in brokers
            for link in psutil.Process(self.pid(number)).net_connections("tcp")
            if link.raddr
        )

    def cpu_seconds(self) -> float:
        return sum(sum(psutil.Process(self.pid(number)).cpu_times()[:2]) for number in self.nodes)


def run(effort: Effort, say: Say) -> list[Measured]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="daybook-bench-")))
        authority = Authority(folder / "identities")
        authority.prepare([])
        cluster = stack.enter_context(ReplicatingApart(folder / "cluster", free_base(), authority))
        rows = _by_partitions(cluster, PARTITIONS[: 2 if effort.quick else None], say)
        rows += _by_clients(cluster, effort, say)
        rows += _by_threads(cluster, effort, say)
        rows += _by_replicas(cluster, effort, say)
        return [*rows, _who_is_connected(cluster)]


def _by_partitions(cluster: ReplicatingApart, counts: Sequence[int], say: Say) -> list[Measured]:
    """Once each: a topic is made, a broker dies, and comes back."""
    created, elected, whole, memory = ({f"{count:,}": list[Window]() for count in counts} for _ in range(4))
    for count in counts:
        name, topic = f"{count:,}", f"p16-{count}"
        created[name].append(
            Window(timed(partial(create_assigned, cluster.bootstrap, topic, _on_all(count))))
        )
        lost, others = BROKERS[0], BROKERS[1:]
        led = sum(1 for led_topic, _ in cluster.layout().led_by(lost) if led_topic == topic)
        cluster.kill(lost)
        elected[name].append(Window(timed(partial(_await_leaders, cluster, lost)), {"moved": led}))
        sizes = [psutil.Process(cluster.pid(broker)).memory_info().rss for broker in others]
        memory[name].append(Window(max(sizes) / MIB))
        cluster.launch(lost)
        whole[name].append(Window(timed(cluster.await_in_sync)))
        delete_topics(cluster.admin, [topic])
        say(f"{name}: led again after {elected[name][0].figure:.1f} s")
    return [
        Measured("partitions created, three replicas each", "s", created, lower_is_better=True),
        Measured("a broker killed: until all have leaders", "s", elected, lower_is_better=True),
        Measured("it comes back: until all are in sync", "s", whole, lower_is_better=True),
        Measured("memory of the larger remaining broker", "MiB", memory, lower_is_better=True),
    ]


def _on_all(partitions: int) -> list[list[int]]:
    """Each partition on every broker, led by one after the other."""
    return [[BROKERS[(first + n) % 3] for n in range(3)] for first in range(partitions)]


def _await_leaders(cluster: Cluster, lost: int) -> None:
    """Until no partition counts on the lost broker, neither as its leader nor as in sync."""
    wait_until(lambda: not _counting_on(cluster, lost), "all have leaders", ELECTED_SECONDS, every=0.1)


def _counting_on(cluster: Cluster, number: int) -> int:
    return sum(number in replicas.in_sync for replicas in _layout(cluster).partitions.values())


def _layout(cluster: Cluster) -> Layout:
    """As a broker says that was not away: a new client has asked no other one yet."""
    return read_layout(clients.admin(cluster.nodes[BROKERS[1]].own_address))


def _by_clients(cluster: ReplicatingApart, effort: Effort, say: Say) -> list[Measured]:
    with Traffic(cluster, "p16-clients", effort.seconds) as traffic:
        contenders = [
            Contender(
                f"{producers} producers, {consumers} consumers", partial(traffic.window, producers, consumers)
            )
            for producers, consumers in (MANY, SOME, FEW)
        ]
        windows = interleave(contenders, effort.windows, say)
    return [Measured(f"records of {SMALL} B written and read", "records/s", windows)]


def _by_threads(cluster: ReplicatingApart, effort: Effort, say: Say) -> list[Measured]:
    with Traffic(cluster, "p16-threads", effort.seconds) as traffic:

        def window(threads: tuple[int, int]) -> Window:
            for step in (THREADS["2 and 4 threads"], threads):
                _set_threads(cluster, *step)
            return traffic.window(*MANY)

        contenders = [Contender(name, partial(window, threads)) for name, threads in THREADS.items()]
        windows = interleave(contenders, effort.windows, say)
        _set_threads(cluster, *THREADS["2 and 4 threads"])
    return [
        Measured(f"the same, {MANY[0]} and {MANY[1]} clients, by threads of a broker", "records/s", windows)
    ]


def _set_threads(cluster: Cluster, network: int, io: int) -> None:
    admin = cluster.admin
    for number in BROKERS:
        entries = [
            ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in (("num.network.threads", network), ("num.io.threads", io))
        ]
        resource = ConfigResource(ConfigResource.Type.BROKER, str(number), incremental_configs=entries)
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(60)


def _by_replicas(cluster: ReplicatingApart, effort: Effort, say: Say) -> list[Measured]:
    for number in FIVE[len(BROKERS) :]:
        say(f"broker {number} joins")
        cluster.add(number, f"rack-{number}")
    for count in REPLICAS:
        durable = {**DURABLE, "min.insync.replicas": str(math.ceil(count / 2))}
        create_assigned(cluster.bootstrap, f"p16-replicas-{count}", [FIVE[:count]], durable)

    def contenders(measure: Callable[..., Window]) -> list[Contender]:
        return [
            Contender(f"{count} replicas", partial(measure, cluster, f"p16-replicas-{count}", effort.seconds))
            for count in REPLICAS
        ]

    fast = interleave(contenders(_as_fast_as_possible), effort.windows, say)
    slow = interleave(contenders(_one_by_one), effort.windows, say)
    return [
        Measured(f"records of {LARGE:,} B, acks=all", "MiB/s", fast),
        Measured("one record after the other, acks=all: p50", "ms", slow, lower_is_better=True),
    ]


def _as_fast_as_possible(cluster: ReplicatingApart, topic: str, seconds: float) -> Window:
    writing = Writing(cluster.bootstrap, topic, LARGE)
    before, began = cluster.cpu_seconds(), time.perf_counter()
    writing.write_until(began + seconds)
    took = time.perf_counter() - began
    cpu = {"cpu brokers": (cluster.cpu_seconds() - before) / took}
    return Window(writing.acknowledged * LARGE / MIB / took, cpu)


def _one_by_one(cluster: ReplicatingApart, topic: str, seconds: float) -> Window:
    producer = clients.writer(cluster.bootstrap, {"linger.ms": 0})
    times, until = list[float](), time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        producer.produce(topic, bytes(LARGE))
        if producer.flush(30):
            raise Unmeasurable(f"{topic}: a record was not acknowledged within 30 s")
        times.append((time.perf_counter() - began) * 1000)
    times.sort()
    return Window(times[len(times) // 2], {"p99": times[int(len(times) * 0.99)]})


def _who_is_connected(cluster: ReplicatingApart) -> Measured:
    apart, clients_too = cluster.connected(REPLICATION_HOST), cluster.connected(HOST)
    windows = {"for replication": [Window(apart)], "for clients": [Window(clients_too)]}
    row = Measured("connections from brokers to a listener of brokers", "connections", windows)
    row.reach("some at that for replication", apart, 1)
    row.reach("none at that for clients", clients_too, 0, at_least=False)
    return row


@dataclass
class Writing:
    """A producer and what of its records was acknowledged."""

    bootstrap: str
    topic: str
    size: int
    acknowledged: int = 0
    refused: int = 0

    def write_until(self, end: float) -> None:
        """Write until `end`, of `time.perf_counter`, and wait for the acknowledgements."""
        options: dict[str, Any] = {"queue.buffering.max.messages": QUEUED, "linger.ms": 5}
        producer: Producer = clients.writer(self.bootstrap, options)
        value = os.urandom(self.size)
        while time.perf_counter() < end:
            try:
                producer.produce(self.topic, value, on_delivery=self._delivered)
                producer.poll(0)
            except BufferError:
                producer.poll(0.01)
        producer.flush(60)
        if self.refused:
            raise Unmeasurable(f"{self.topic}: {self.refused} records were refused")

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self.acknowledged += error is None
        self.refused += error is not None


class Traffic:
    """A topic that producers write and consumers read at the same time, each client in threads of its own."""

    def __init__(self, cluster: ReplicatingApart, topic: str, seconds: float) -> None:
        self._cluster, self._topic, self._seconds = cluster, topic, seconds

    def __enter__(self) -> Traffic:
        create_assigned(self._cluster.bootstrap, self._topic, _on_all(SPREAD))
        return self

    def __exit__(self, *_: object) -> None:
        delete_topics(self._cluster.admin, [self._topic])

    def window(self, producers: int, consumers: int) -> Window:
        """As fast as they can; every record is read by one consumer. Raises Unmeasurable where one is not."""
        bootstrap, topic = self._cluster.bootstrap, self._topic
        writers = [Writing(bootstrap, topic, SMALL) for _ in range(producers)]
        readers = [_at_the_end(bootstrap, topic, range(SPREAD)[n::consumers]) for n in range(consumers)]
        read, written = [0] * consumers, threading.Event()

        def consume(number: int) -> None:
            while (records := readers[number].consume(1000, 0.1)) or not written.is_set():
                read[number] += sum(record.error() is None for record in records)

        brokers, own, began = self._cluster.cpu_seconds(), time.process_time(), time.perf_counter()
        reading = [threading.Thread(target=consume, args=(number,)) for number in range(consumers)]
        writing = [
            threading.Thread(target=writer.write_until, args=(began + self._seconds,)) for writer in writers
        ]
        for thread in (*reading, *writing):
            thread.start()
        for thread in writing:
            thread.join()
        took = time.perf_counter() - began
        acknowledged = sum(writer.acknowledged for writer in writers)
        wait_until(lambda: sum(read) >= acknowledged, "all records are read", 60)
        written.set()
        for thread in reading:
            thread.join()
        for reader in readers:
            reader.close()
        if sum(read) != acknowledged:
            raise Unmeasurable(f"{sum(read)} of {acknowledged} records were read")
        cpu_of = {
            "cpu clients": time.process_time() - own,
            "cpu brokers": self._cluster.cpu_seconds() - brokers,
        }
        cpu = {name: seconds / took for name, seconds in cpu_of.items()}
        return Window(acknowledged / took, {"MiB/s": acknowledged * SMALL / MIB / took, **cpu})


def _at_the_end(bootstrap: str, topic: str, partitions: Sequence[int]) -> Consumer:
    """A consumer that reads what is written to these partitions from now on."""
    ends = partial(high_watermarks, bootstrap, topic, list(partitions))
    positions = wait_until(ends, "the topic can be read", 60, later=(KafkaException,))
    consumer = clients.reader(bootstrap)
    consumer.assign([TopicPartition(topic, number, end) for number, end in positions.items()])
    return consumer
