"""The envelope: what travels beside a record, as CloudEvents 1.0 headers in Kafka's binary mode.

Source of the names: CloudEvents 1.0.2, Kafka protocol binding (`ce_` prefix) and its documented extensions `sequence`,
`correlationid`, `causationid`, `authtype`, `authid`. Ours: `epoch`, `requesthash`, `transaction`, `replyto`,
`expectedversion`, `operatorid`, `groupauth`, `formerid`.
"""

from __future__ import annotations

import binascii
import re
import struct
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import getrandbits
from typing import Any, Generic, NamedTuple, TypeVar

from services.kernel import KernelError

Body = TypeVar("Body")
Headers = list[tuple[str, bytes]]
LARGEST_NUMBER = 2**31 - 1  # of an event's version and epoch
_NUMBER = re.compile(rb"[1-9][0-9]{0,9}")
_TIME = re.compile(rb"(?:19[7-9]|[2-9][0-9]{2})[0-9]-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
_AUTH_TYPE = re.compile(rb"[a-z_]{1,32}")
_AUTH_ID = re.compile(rb"(?:[A-Za-z0-9][A-Za-z0-9._~-]{0,63})?")
_EPOCH, _MICROSECOND = datetime.fromtimestamp(0, UTC), timedelta(microseconds=1)


class ReplyAddress(NamedTuple):
    """Where an outcome goes: a partition (an API replica's) or a key (an asking entity's)."""

    topic: str
    partition: int | None
    tag: str
    key: str

    def __str__(self) -> str:
        return f"{self.topic}:{'' if self.partition is None else self.partition}:{self.tag}:{self.key}"

    @classmethod
    def parse(cls, text: str) -> ReplyAddress:
        topic, partition, tag, key = text.split(":", 3)
        return cls(topic, int(partition) if partition else None, tag, key)


class AuthContext(NamedTuple):
    """Who caused a record, as CloudEvents' Auth Context says it.

    `type`: `user`, `service_account`, `system` (a service did it of its own accord), `unauthenticated` or `unknown`.
    `id`: the random subject id of a user or service account, never a name. `operator`: the id of the operator who sent
    the command again, if one did.
    """

    type: str
    id: str = ""
    operator: str = ""

    def __str__(self) -> str:
        return f"{self.type}:{self.id}:{self.operator}"


SYSTEM, UNAUTHENTICATED = AuthContext("system"), AuthContext("unauthenticated")
UNKNOWN = AuthContext("unknown")  # of records that were written before they said it


class Metadata(NamedTuple):
    """The plumbing of one record.

    `version` is the position in the entity's stream (events; 0 for commands), `recorded_at` micros UTC,
    `expected_version` what If-Match demanded (see `unexpected`), `reply_to` where a command's outcome goes,
    `former_id` the id that an API of the version before would have given to the same request.
    """

    id: str
    type: str
    subject: str
    source: str
    recorded_at: int
    correlation_id: str
    causation_id: str
    epoch: int
    version: int = 0
    request_hash: str = ""
    reply_to: ReplyAddress | None = None
    expected_version: int | None = None
    transaction: str = ""
    traceparent: str = ""
    auth: AuthContext = UNKNOWN
    former_id: str = ""


@dataclass(frozen=True, slots=True)
class Envelope(Generic[Body]):
    """A record and its metadata."""

    metadata: Metadata
    body: Body


class Malformed(KernelError, ValueError):
    """A record whose headers are not an envelope."""


def write_headers(meta: Metadata) -> Headers:
    """The headers of a command or an event; empty fields are left out."""
    headers: Headers = [
        *_shared_headers(meta.type, meta.source, meta.epoch),
        ("ce_time", _time_header(meta.recorded_at)),
        ("ce_id", meta.id.encode()),
        ("ce_subject", meta.subject.encode()),
        ("ce_correlationid", meta.correlation_id.encode()),
        ("ce_causationid", meta.causation_id.encode()),
        *_auth_headers(meta.auth),
    ]
    if meta.version:
        headers.append(("ce_sequence", b"%d" % meta.version))
    if meta.request_hash:
        headers.append(("ce_requesthash", meta.request_hash.encode()))
    if meta.reply_to is not None:
        headers.append(("ce_replyto", str(meta.reply_to).encode()))
    if meta.expected_version is not None:
        headers.append(("ce_expectedversion", b"%d" % meta.expected_version))
    if meta.former_id:
        headers.append(("ce_formerid", meta.former_id.encode()))
    if meta.transaction:
        headers.append(("ce_transaction", meta.transaction.encode()))
    if meta.traceparent:
        headers.append(("traceparent", meta.traceparent.encode()))
    return headers


def read_headers(headers: Iterable[tuple[str, bytes | str | None]] | None) -> Metadata:
    """The metadata of a record. Raises `Malformed` where a required header is missing or not of its form."""
    try:
        return _metadata(dict(headers or ()))  # type: ignore[arg-type] # what is not bytes fails to decode
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise Malformed(f"not an envelope: {error!r}") from error


def _metadata(of: Mapping[str, bytes]) -> Metadata:
    get = of.get
    reply_to, expected = get("ce_replyto"), get("ce_expectedversion")
    return Metadata(
        of["ce_id"].decode(),
        of["ce_type"].decode(),
        of["ce_subject"].decode(),
        of["ce_source"].decode(),
        parse_time(of["ce_time"].decode()),
        of["ce_correlationid"].decode(),
        of["ce_causationid"].decode(),
        int(of["ce_epoch"]),
        int(get("ce_sequence", b"0")),
        get("ce_requesthash", b"").decode(),
        None if reply_to is None else ReplyAddress.parse(reply_to.decode()),
        None if expected is None else int(expected),
        get("ce_transaction", b"").decode(),
        get("traceparent", b"").decode(),
        _auth_context(get("ce_authtype"), get("ce_authid"), get("ce_operatorid")),
        get("ce_formerid", b"").decode(),
    )


def read_event_headers(headers: Mapping[str, Any]) -> Metadata | None:
    """The metadata of an event; None for what our writers would not write, form by form.

    Stricter than `read_headers`, so that Spark can decide the same. The other headers of a command mean nothing here.
    """
    get = headers.get
    try:
        metadata = Metadata(
            headers["ce_id"].decode(),
            headers["ce_type"].decode(),
            headers["ce_subject"].decode(),
            headers["ce_source"].decode(),
            _micros(headers["ce_time"]),
            headers["ce_correlationid"].decode(),
            headers["ce_causationid"].decode(),
            _number(headers["ce_epoch"]),
            _number(headers["ce_sequence"]) if "ce_sequence" in headers else 0,
            get("ce_requesthash", b"").decode(),
            None,
            None,
            get("ce_transaction", b"").decode(),
            get("traceparent", b"").decode(),
            _auth_context(get("ce_authtype"), get("ce_authid"), get("ce_operatorid")),
        )
    except (KeyError, AttributeError, TypeError, ValueError):
        return None
    texts = (*metadata[:4], *metadata[5:7])
    return metadata if all(texts) and "\0" not in "".join(texts) else None


@lru_cache(maxsize=4096)
def _number(text: bytes) -> int:
    """Raises ValueError or TypeError for what our writers would not write."""
    if not _NUMBER.fullmatch(text) or int(text) > LARGEST_NUMBER:
        raise ValueError(text)
    return int(text)


@lru_cache(maxsize=1024)
def _micros(text: bytes) -> int:
    """All records of a batch have the same time. Raises like `_number`."""
    if not _TIME.fullmatch(text):
        raise ValueError(text)
    return parse_time(text.decode())


@lru_cache(maxsize=64)
def _shared_headers(kind: str, source: str, epoch: int) -> Headers:
    """What all records of one type have in common; made once, never changed."""
    return [
        ("ce_specversion", b"1.0"),
        ("ce_type", kind.encode()),
        ("ce_source", source.encode()),
        ("content-type", b"application/avro"),
        ("ce_epoch", b"%d" % epoch),
    ]


@lru_cache(maxsize=4096)
def _auth_headers(auth: AuthContext) -> Headers:
    """All events that follow from one request have the same; made once, never changed."""
    headers = [("ce_authtype", auth.type.encode())]
    if auth.id:
        headers.append(("ce_authid", auth.id.encode()))
    if auth.operator:
        headers.append(("ce_operatorid", auth.operator.encode()))
    return headers


@lru_cache(maxsize=4096)
def _auth_context(kind: bytes | None, auth_id: bytes | None, operator: bytes | None) -> AuthContext:
    """Nothing is decided by it: what our writers would not write is `UNKNOWN`, and no reason to pass over a record."""
    try:
        if _AUTH_TYPE.fullmatch(kind or b"") and _AUTH_ID.fullmatch(auth_id or b""):
            return AuthContext(
                (kind or b"").decode(),
                (auth_id or b"").decode(),
                (operator or b"").decode() if _AUTH_ID.fullmatch(operator or b"") else "",
            )
    except TypeError:  # a consumer that gives headers as text
        pass
    return UNKNOWN


def sent_again(headers: Iterable[tuple[str, bytes]], operator: str) -> Headers:
    """The headers of a command that an operator sends again: it keeps its principal."""
    kept = [header for header in headers if header[0] != "ce_operatorid"]
    if not operator:
        return kept
    named = [] if any(name == "ce_authtype" for name, _ in kept) else _auth_headers(UNKNOWN)
    return [*kept, *named, ("ce_operatorid", operator.encode())]


def group_auth_header(auths: Iterable[AuthContext]) -> tuple[str, bytes]:
    """The header of a batch of messages whose groups were caused by several principals: theirs, in order."""
    return "ce_groupauth", ",".join(map(str, auths)).encode()


def group_auths(headers: Iterable[tuple[str, bytes | None]] | None, count: int) -> list[AuthContext] | None:
    """The principals of a batch's groups; None if the record's own holds for all."""
    value = dict(headers or ()).get("ce_groupauth")
    if value is None:
        return None
    parts = [part.split(b":") for part in value.split(b",")]
    auths = [_auth_context(*part) if len(part) == 3 else UNKNOWN for part in parts]
    return auths if len(auths) == count else [UNKNOWN] * count


@lru_cache(maxsize=4)
def _time_header(micros: int) -> bytes:
    """All records of a batch have the same time."""
    return format_time(micros).encode()


def format_time(micros: int) -> str:
    """RFC 3339 in UTC with six decimals."""
    seconds, rest = divmod(micros, 1_000_000)
    return f"{_format_second(seconds)}.{rest:06d}Z"


@lru_cache(maxsize=4)
def _format_second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def parse_time(text: str) -> int:
    """Micros UTC of an RFC 3339 time that names its offset. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time needs its offset: {text!r}")
    return (moment - _EPOCH) // _MICROSECOND


def now_micros() -> int:
    """The clock of the edge: micros UTC."""
    return time.time_ns() // 1000


def uuid7() -> str:
    """A time-ordered id (RFC 9562, version 7): 48 bits of milliseconds, 74 random bits. Not secret."""
    random_a, random_b = getrandbits(12), getrandbits(62)
    milliseconds = time.time_ns() // 1_000_000
    digits = f"{milliseconds << 80 | 0x7 << 76 | random_a << 64 | 0b10 << 62 | random_b:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


@lru_cache(maxsize=65_536)  # an entity's records come in close succession
def partition_of(key: str, partitions: int) -> int:
    """The partition of a key: murmur2 as Kafka's Java client hashes it."""
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Kafka's variant of MurmurHash2, 32 bits, seed 0x9747b28c (org.apache.kafka.common.utils.Utils)."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    whole = len(data) & ~3
    digest = 0x9747B28C ^ len(data)
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * factor & mask
        word ^= word >> 24
        digest = (digest * factor & mask) ^ (word * factor & mask)
    if len(data) > whole:
        digest ^= int.from_bytes(data[whole:], "little")
        digest = digest * factor & mask
    digest ^= digest >> 13
    digest = digest * factor & mask
    return digest ^ digest >> 15


class MalformedToken(KernelError, ValueError):
    """Not a token that the shop gave out."""


class Token(NamedTuple):
    """The Consistency-Token: what a writer carries to a reader to see its own write.

    It names a version of one stream, never an offset, so it holds on every site that has the stream. `stream` is
    `order/<id>` or `stock/<sku>`; `event_id` is empty where a command changed nothing.
    """

    stream: str
    version: int
    event_id: str
    epoch: int

    def encode(self) -> str:
        text = f"{self.stream}@{self.version}.{self.event_id}.{self.epoch}"
        return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()

    @classmethod
    def decode(cls, text: str) -> Token:
        """Raises `MalformedToken`."""
        try:
            plain = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)).decode()
            stream, _, rest = plain.rpartition("@")
            version, event_id, epoch = rest.split(".")
            token = cls(stream, int(version), event_id, int(epoch))
        except (binascii.Error, UnicodeError, ValueError) as error:
            raise MalformedToken(f"not a consistency token: {text!r:.80}") from error
        numbers = 0 <= token.version < 2**63 and 0 <= token.epoch < 2**31
        if not stream or "\0" in stream or not numbers or token.encode() != text:
            raise MalformedToken(f"not a consistency token: {text!r:.80}")
        return token
