"""Generated from the schemas and topics.yaml by `daybook contracts lock`; do not edit."""
# fmt: off

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from contracts.avro import LENGTHS, array, binary, int32, join, long
from contracts.kernel import records

OUTCOME_KIND = {
    "accepted": b"\x00",
    "refused": b"\x02",
    "conflict": b"\x04",
    "failed": b"\x06",
}

ROLE = {
    "active": b"\x00",
    "passive": b"\x02",
}

HOLD_KIND = {
    "quiesced": b"\x00",
    "unproven": b"\x02",
    "takeover": b"\x04",
}

INPUT_PHASE = {
    "inbox": b"\x00",
    "closed": b"\x02",
}

RECORD_VERDICT = {
    "foreign": b"\x00",
    "genuine": b"\x02",
    "suspect": b"\x04",
}


def epoch_opened(record: records.EpochOpened) -> bytes:
    return join((
        long(record.epoch),
        LENGTHS[len(text := record.site.encode())] + text,
        long(record.opened_at),
    ))


def outcome(record: records.Outcome) -> bytes:
    return join((
        LENGTHS[len(text := record.command_id.encode())] + text,
        LENGTHS[len(text := record.command_type.encode())] + text,
        LENGTHS[len(text := record.subject.encode())] + text,
        LENGTHS[len(text := record.tag.encode())] + text,
        OUTCOME_KIND[record.kind],
        long(record.version),
        array([LENGTHS[len(text := item.encode())] + text for item in record.event_ids]) if record.event_ids else b"\0",
        LENGTHS[len(text := record.status.encode())] + text,
        LENGTHS[len(text := record.code.encode())] + text,
        LENGTHS[len(text := record.reason.encode())] + text,
        LENGTHS[len(text := record.request_hash.encode())] + text,
        b"\1" if record.replayed else b"\0",
    ))


def outcome_batch(record: records.OutcomeBatch) -> bytes:
    return array([outcome(item) for item in record.outcomes]) if record.outcomes else b"\0"


def answer(record: records.Answer) -> bytes:
    return join((
        outcome(record.outcome),
        long(record.recorded_at),
    ))


def remembered(record: records.Remembered) -> bytes:
    return join((
        outcome(record.outcome),
        long(record.recorded_at),
    ))


def snapshot(record: records.Snapshot) -> bytes:
    return join((
        LENGTHS[len(text := record.format.encode())] + text,
        long(record.version),
        long(record.recorded_at),
        binary(record.state),
        array([remembered(item) for item in record.answers]) if record.answers else b"\0",
        long(record.read_to),
        long(record.unread),
    ))


def watermark(record: records.Watermark) -> bytes:
    return join((
        long(record.events),
        long(record.answers),
        long(record.epoch),
        long(record.judged),
    ))


def header(record: records.Header) -> bytes:
    return join((
        LENGTHS[len(text := record.name.encode())] + text,
        binary(record.value),
    ))


def parked_command(record: records.ParkedCommand) -> bytes:
    return join((
        LENGTHS[len(text := record.topic.encode())] + text,
        int32(record.partition),
        long(record.offset),
        LENGTHS[len(text := record.reason.encode())] + text,
        binary(record.key),
        binary(record.value),
        array([header(item) for item in record.headers]) if record.headers else b"\0",
        long(record.recorded_at),
    ))


def site_role(record: records.SiteRole) -> bytes:
    return join((
        LENGTHS[len(text := record.site.encode())] + text,
        ROLE[record.role],
        long(record.epoch),
    ))


def site_hold(record: records.SiteHold) -> bytes:
    return join((
        HOLD_KIND[record.kind],
        long(record.epoch),
        long(record.since),
    ))


def storage_block(record: records.StorageBlock) -> bytes:
    return join((
        LENGTHS[len(text := record.folder.encode())] + text,
        long(record.free_bytes),
        long(record.since),
    ))


def slot_layout(record: records.SlotLayout) -> bytes:
    return join((
        LENGTHS[len(text := record.service.encode())] + text,
        int32(record.number),
        int32(record.slots),
    ))


def command_inputs(record: records.CommandInputs) -> bytes:
    return join((
        INPUT_PHASE[record.phase],
        long(record.recorded_at),
    ))


def canary(record: records.Canary) -> bytes:
    return join((
        LENGTHS[len(text := record.site.encode())] + text,
        long(record.epoch),
        long(record.sent_at),
    ))


def loss_reissued(record: records.LossReissued) -> bytes:
    return join((
        LENGTHS[len(text := record.command_id.encode())] + text,
        LENGTHS[len(text := record.command_type.encode())] + text,
        LENGTHS[len(text := record.subject.encode())] + text,
        long(record.lost_epoch),
        LENGTHS[len(text := record.outcome.encode())] + text,
        LENGTHS[len(text := record.code.encode())] + text,
        long(record.decided_at),
    ))


def loss_written_off(record: records.LossWrittenOff) -> bytes:
    return join((
        LENGTHS[len(text := record.command_id.encode())] + text,
        LENGTHS[len(text := record.command_type.encode())] + text,
        LENGTHS[len(text := record.subject.encode())] + text,
        long(record.lost_epoch),
        LENGTHS[len(text := record.reason.encode())] + text,
        long(record.decided_at),
    ))


def record_judged(record: records.RecordJudged) -> bytes:
    return join((
        LENGTHS[len(text := record.stream.encode())] + text,
        long(record.version),
        LENGTHS[len(text := record.event_id.encode())] + text,
        LENGTHS[len(text := record.digest.encode())] + text,
        RECORD_VERDICT[record.verdict],
        LENGTHS[len(text := record.reason.encode())] + text,
        long(record.judged_at),
    ))


def epochs_recorded(record: records.EpochsRecorded) -> bytes:
    return join((
        LENGTHS[len(text := record.topic.encode())] + text,
        array([long(item) for item in record.epochs]) if record.epochs else b"\0",
        long(record.recorded_at),
    ))


ENCODERS: dict[type, Callable[[Any], bytes]] = {
    records.EpochOpened: epoch_opened,
    records.OutcomeBatch: outcome_batch,
    records.Answer: answer,
    records.Snapshot: snapshot,
    records.Watermark: watermark,
    records.ParkedCommand: parked_command,
    records.SiteRole: site_role,
    records.SiteHold: site_hold,
    records.StorageBlock: storage_block,
    records.SlotLayout: slot_layout,
    records.CommandInputs: command_inputs,
    records.Canary: canary,
    records.LossReissued: loss_reissued,
    records.LossWrittenOff: loss_written_off,
    records.RecordJudged: record_judged,
    records.EpochsRecorded: epochs_recorded,
}
