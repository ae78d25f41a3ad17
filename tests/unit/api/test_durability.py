"""Writes that wait for the other site: what counts as seen, what the client gets, and that no cut loses a 201."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from random import Random
from typing import Any, cast

import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from contracts.kernel.records import Outcome
from contracts.topics import TOPICS
from services.edge.app import application
from services.edge.durability import THIS_SITE, Durability, PeerLog, SeenMarks, mark_of
from services.edge.middleware import CorrelationMiddleware
from services.edge.problems import LogUnavailable, PeerUnavailable
from services.edge.settings import ApiSettings
from services.edge.writes import Resource, Writer
from services.inventory.api import StockApi, routes
from services.kernel.record.envelope import Metadata
from tests.unit.api.in_process import AppResponse, send_request

CUTS = 50
WRITES = 200
WAIT_SECONDS = 0.2
BOTH = ("Durability", "both-sites")
SETTINGS = ApiSettings(kafka="", hash_key=SecretStr("a key for all tests"), both_sites_seconds=WAIT_SECONDS)


async def test_a_mark_counts_if_it_came_before_the_wait_or_during_it() -> None:
    seen = SeenMarks()
    seen.add(["before"])
    assert await seen.wait("before", 0)
    waiting = [asyncio.create_task(seen.wait(mark, 30)) for mark in ("during", "during", "never")]
    await asyncio.sleep(0)
    seen.clear()  # the connection was lost: those who wait go on
    seen.add(["other", "during"])
    assert await waiting[0]
    assert await waiting[1]
    assert not await seen.wait("never", 0)
    assert not await seen.wait("before", 0)
    waiting[2].cancel()


async def test_only_the_newest_marks_are_remembered() -> None:
    seen = SeenMarks(most=3)
    seen.add("abcde")
    assert [mark in seen for mark in "abcde"] == [False, False, True, True, True]


class Gateway:
    """Returns an outcome with these changes; `sent` counts the commands."""

    epoch = 1

    def __init__(self, **changes: Any) -> None:
        self._changes, self.sent, self.closed = changes, 0, False

    def require_open(self) -> None:
        if self.closed:
            raise LogUnavailable("closed")

    async def send(self, command: Any, request: Metadata) -> Outcome:
        self.sent += 1
        fields = {
            "command_id": request.id,
            "command_type": command.TYPE,
            "subject": request.subject,
            "tag": "",
            "kind": "accepted",
            "version": 1,
            "event_ids": ("event",),
            "status": "stocked",
            "code": "",
            "reason": "",
            "request_hash": request.request_hash,
            "replayed": False,
        }
        return Outcome(**cast(Any, fields | self._changes))


class Peer:
    """The other site; None: it is not reachable."""

    def __init__(self, durability: Durability | None) -> None:
        self._durability = durability
        self.marks: list[tuple[str, bool]] = []

    async def admit(self, gateway: Gateway, *, both_sites: bool) -> None:
        gateway.require_open()
        if both_sites and self._durability is None:
            raise PeerUnavailable("not reachable")

    def acknowledge(self, outcome: Outcome) -> None:
        """There is no loss budget."""

    async def durability(self, mark: str, _: str, *, repeated: bool) -> Durability:
        assert self._durability is not None
        self.marks.append((mark, repeated))
        return self._durability


def app(gateway: Gateway, peer: Peer | None) -> FastAPI:
    writer = Writer(
        cast(Any, gateway), Resource("stock", "sku", "/stock/"), b"a key for tests", cast(Any, peer)
    )
    made = application([routes(StockApi(writer))], lambda: None)
    made.add_middleware(CorrelationMiddleware)
    return made


async def receive(
    gateway: Gateway, peer: Peer | None, headers: Sequence[tuple[str, str]] = (BOTH,)
) -> tuple[AppResponse, dict[str, Any]]:
    body = b'{"quantity": 1, "reference": "DN-1"}'
    given = [("Idempotency-Key", "k"), *headers]
    response = await send_request(app(gateway, peer), "POST", "/stock/MUG/receipts", "", given, body)
    return response, json.loads(response.body)


@pytest.mark.parametrize(("durability", "status"), [("both-sites", 200), ("this-site", 202)])
async def test_a_write_says_where_it_is(durability: Durability, status: int) -> None:
    peer = Peer(durability)
    response, body = await receive(Gateway(), peer)
    assert (response.status, body["durability"]) == (status, durability)
    assert (body["version"], body["status"], peer.marks) == (1, "stocked", [("event", False)])
    plain, body = await receive(Gateway(), peer, headers=())
    assert plain.status == 200
    assert "durability" not in body
    assert len(peer.marks) == 1


async def test_a_refusal_keeps_its_status_and_says_where_it_is() -> None:
    refused = {"kind": "refused", "code": "bad_quantity", "event_ids": (), "replayed": True}
    peer = Peer("this-site")
    response, body = await receive(Gateway(**refused), peer)
    assert (response.status, body["code"], body["durability"]) == (409, "bad_quantity", "this-site")
    assert peer.marks == [(body["command_id"], True)]


@pytest.mark.parametrize(
    "changes",
    [{"kind": "failed", "code": "command_failed"}, {"kind": "refused", "code": "idempotency_key_reused"}],
)
async def test_what_no_site_records_does_not_wait(changes: dict[str, Any]) -> None:
    peer = Peer("this-site")
    response, body = await receive(Gateway(**changes), peer)
    assert response.status in (500, 422)
    assert (peer.marks, "durability" in body) == ([], False)


async def test_a_silent_peer_refuses_before_the_command_is_sent() -> None:
    gateway = Gateway()
    response, body = await receive(gateway, Peer(None))
    assert (response.status, body["code"], body["idempotency_key"]) == (503, "peer_unavailable", "k")
    assert gateway.sent == 0
    gateway.closed = True  # this site's own reason comes first
    _, body = await receive(gateway, Peer(None))
    assert body["code"] == "log_unavailable"


async def test_one_site_and_other_values_are_refused() -> None:
    gateway = Gateway()
    response, body = await receive(gateway, None)
    assert (response.status, body["code"], body["field"]) == (422, "single_site", "Durability")
    for headers in ([("Durability", "three-sites")], [BOTH, BOTH]):
        response, body = await receive(gateway, Peer("both-sites"), headers)
        assert (response.status, body["code"], body["field"]) == (422, "invalid_field", "Durability")
    assert gateway.sent == 0


def test_the_mark_of_an_outcome() -> None:
    outcome = Outcome("command", "t", "s", "", "accepted", 1, ("event",), "", "", "", "", False)
    assert mark_of(outcome) == "event"
    assert mark_of(Outcome("command", "t", "s", "", "refused", 1, (), "", "c", "", "", False)) == "command"


class SimulatedSites:
    """Two logs of two partitions, a mirror that copies prefixes, a follower of the copy, and clients that wait.

    `follows` is the log that the follower reads: the other site's, or, as the negative control, this one's.
    """

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch, follows: str = "away") -> None:
        self._random = Random(seed)
        self.logs: dict[str, list[list[str]]] = {"home": [[], []], "away": [[], []]}
        self._follows, self._read = follows, [0, 0]
        self._peer = PeerLog(SETTINGS, TOPICS["order"])
        monkeypatch.setattr(self._peer, "_has_event", lambda mark, _: mark in self.copied())
        self.responses: dict[str, list[Durability]] = {}
        self._clients: list[asyncio.Task[None]] = []

    def copied(self) -> set[str]:
        return {mark for partition in self.logs["away"] for mark in partition}

    async def run(self) -> None:
        """Until the cut: then nothing is copied any more, and the clients end."""
        for _ in range(self._random.randrange(WRITES // 2, WRITES * 4)):
            self._random.choice(
                (self._write, self._copy, self._copy, self._deliver, self._deliver, self._rare)
            )()
            await asyncio.sleep(0)
        await asyncio.gather(*self._clients)

    def _write(self) -> None:
        mark = f"event-{len(self._clients)}"
        self._random.choice(self.logs["home"]).append(mark)
        self._clients.append(asyncio.create_task(self._client(mark)))

    async def _client(self, mark: str) -> None:
        """It repeats its write until it has what it wants, at most twice."""
        for repeated in (False, True):
            durability = await self._peer.durability(mark, "", repeated=repeated)
            self.responses.setdefault(mark, []).append(durability)
            if durability != THIS_SITE:
                return

    def _copy(self) -> None:
        number = self._random.randrange(2)
        source, target = self.logs["home"][number], self.logs["away"][number]
        target.extend(source[len(target) : len(target) + self._random.randrange(6)])

    def _deliver(self) -> None:
        number = self._random.randrange(2)
        log, start = self.logs[self._follows][number], self._read[number]
        self._read[number] = min(len(log), start + self._random.randrange(9))
        self._peer._seen.add(log[start : self._read[number]])

    def _rare(self) -> None:
        """Sometimes the connection is lost, and the follower begins again at the ends."""
        if self._random.random() < 0.1:
            self._peer._lost()
            self._read = [len(log) for log in self.logs[self._follows]]


async def lost_of(seed: int, monkeypatch: pytest.MonkeyPatch, follows: str = "away") -> tuple[int, int, int]:
    """How many writes that were reported as on both sites are lost; how many were reported so, how many not."""
    sites = SimulatedSites(seed, monkeypatch, follows)
    await sites.run()
    both = [mark for mark, responses in sites.responses.items() if responses[-1] != THIS_SITE]
    return len(set(both) - sites.copied()), len(both), len(sites.responses) - len(both)


async def test_no_cut_loses_a_write_that_was_reported_as_on_both_sites(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results = await asyncio.gather(*(lost_of(seed, monkeypatch) for seed in range(CUTS)))
    assert sum(lost for lost, _, _ in results) == 0
    assert sum(both for _, both, _ in results) > 10 * CUTS
    assert sum(late for _, _, late in results) > 0


async def test_the_simulation_sees_writes_that_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    results = await asyncio.gather(*(lost_of(seed, monkeypatch, "home") for seed in range(CUTS)))
    assert sum(lost for lost, _, _ in results) > 0
