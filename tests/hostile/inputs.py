"""Bad inputs for an API, without end: the same for one seed. Most are derived from its OpenAPI document.

An input is the bytes of one request. It is well-framed, so that a connection survives it, unless it is a `probe`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote_from_bytes

from tests.hostile.texts import (
    BODIES,
    CHANGES,
    HEADERS,
    LINES,
    METHODS,
    NUMBERS,
    OTHERS,
    STREAMS,
    TEXTS,
    TYPES,
)

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Operation:
    """One of a document, with what a good request has."""

    method: str
    path: str
    parameters: tuple[tuple[str, str], ...]
    """Each parameter's name, and whether it is in `path`, `query` or `header`."""
    body: Any


def operations(document: Document) -> list[Operation]:
    return [
        Operation(
            method.upper(),
            path,
            tuple((parameter["name"], parameter["in"]) for parameter in content.get("parameters", ())),
            _example(document, content),
        )
        for path, methods in document["paths"].items()
        for method, content in methods.items()
    ]


def _example(document: Document, content: Mapping[str, Any]) -> Any:
    if "requestBody" not in content:
        return None
    reference = content["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    return document["components"]["schemas"][reference.rpartition("/")[2]]["examples"][0]


def request(
    method: str,
    target: str,
    headers: Mapping[str, str | bytes],
    body: bytes = b"",
    framing: str = "Content-Length",
) -> bytes:
    lines = [b"%s %s HTTP/1.1" % (method.encode(), target.encode()), b"Host: 127.0.0.1"]
    for name, value in headers.items():
        lines.append(name.encode() + b": " + (value if isinstance(value, bytes) else value.encode()))
    if framing and (body or method != "GET"):
        lines.append(framing.encode() + b": %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def one_line(text: str) -> bytes:
    """The text as a header's value: bytes that end no line."""
    return text.encode(errors="replace").translate(None, b"\r\n\0")


class Fuzzer:
    """Requests of one API. `token` is valid for every scope; without it, all of them have to be refused."""

    def __init__(self, document: Document, token: str, seed: int) -> None:
        self._operations, self._token, self._random = operations(document), token, Random(seed)

    def documented(self) -> Iterator[bytes]:
        """Operations of the document with a valid token, and with parts that are not as the document says."""
        while True:
            operation = self._random.choice(self._operations)
            yield self._of(operation, {"Authorization": f"Bearer {self._token}"})

    def with_bad_tokens(self, tokens: Mapping[str, list[tuple[str, str]]]) -> Iterator[bytes]:
        """The same operations, each as good as it can be, with a token that is none: every route has to refuse it."""
        named = list(tokens.values())
        while True:
            operation = self._random.choice(self._operations)
            headers = dict(self._random.choice(named))
            if self._random.random() < 0.7:
                headers = {"Authorization": f"Bearer {self._damaged()}"}
            path = operation.path.replace("{order_id}", "536365").replace("{sku}", "85123A")
            body = b"" if operation.body is None else json.dumps(operation.body).encode()
            yield request(operation.method, path, {**_json(body), **headers}, body)

    def with_bad_headers(self) -> Iterator[bytes]:
        """Headers that clients do not send, with a valid token or in its part."""
        while True:
            operation = self._random.choice(self._operations)
            headers: dict[str, str | bytes] = {"Authorization": f"Bearer {self._token}"}
            for _ in range(self._random.randint(1, 6)):
                headers[self._random.choice(HEADERS)] = one_line(self._text())
            method = operation.method if self._random.random() < 0.8 else self._random.choice(METHODS)
            path = operation.path.replace("{order_id}", "hostile").replace("{sku}", "hostile")
            yield request(method, path, headers, self._random.choice(BODIES) if method == "POST" else b"")

    def probes(self) -> Iterator[bytes]:
        """What is not well-framed HTTP; each needs a connection of its own."""
        while True:
            good = self._of(self._random.choice(self._operations), {"Authorization": f"Bearer {self._token}"})
            yield self._broken(good)

    def _broken(self, good: bytes) -> bytes:
        """A good request that was cut or changed, or bytes that never were one."""
        where = self._random.randrange(len(good))
        match self._random.randrange(6):
            case 0:
                return good[:where]
            case 1:
                return good[:where] + b"\0\xff\r" + good[where:]
            case 2:
                return self._random.randbytes(self._random.randint(1, 3000))
            case 3:
                old, new = self._random.choice(CHANGES)
                return good.replace(old, new, 1)
            case 4:
                return good.replace(b"\r\n", b"\r\n" + self._random.choice(LINES) + b"\r\n", 1)
            case _:
                return self._random.choice(STREAMS)

    def _of(self, operation: Operation, headers: dict[str, str | bytes]) -> bytes:
        random = self._random.random
        path = operation.path
        query = []
        for name, part in operation.parameters:
            if part == "path":
                path = path.replace(f"{{{name}}}", self._segment())
            elif part == "query" and random() < 0.5:
                query.append(f"{name}={quote_from_bytes(self._text().encode(errors='replace'))}")
            elif part == "header" and random() < 0.3:
                headers[name] = one_line(self._text())
        if random() < 0.2:
            query.append(f"{quote_from_bytes(self._text().encode(errors='replace'))}=1")
        body = b""
        if operation.body is not None:
            body = self._body(operation.body)
            headers["Content-Type"] = "application/json"
            if random() < 0.1:
                headers["Content-Type"] = one_line(self._random.choice(TYPES))
        return request(operation.method, path + ("?" + "&".join(query) if query else ""), headers, body)

    def _segment(self) -> str:
        """Of a path: few of them are sound, so that few entities come into being."""
        if self._random.random() < 0.3:
            return f"hostile-{self._random.randrange(20)}"
        raw = self._text().encode(errors="replace")[:1000]
        return quote_from_bytes(raw, safe="") or "%00"

    def _text(self) -> str:
        if self._random.random() < 0.8:
            return self._random.choice(TEXTS)
        points = (
            self._random.choice((0x7F, 0xFF, 0xD7FF, 0x10FFFF)) for _ in range(self._random.randint(1, 30))
        )
        return "".join(chr(self._random.randint(1, most)) for most in points).translate(
            {0xD800 + n: None for n in range(2048)}
        )

    def _body(self, example: Any) -> bytes:
        kind = self._random.random()
        if kind < 0.2:
            return self._random.choice(BODIES)
        text = json.dumps(self._altered(example), ensure_ascii=self._random.random() < 0.5).encode()
        if kind < 0.3:
            return text[: self._random.randrange(len(text))]
        if kind < 0.4:
            where = self._random.randrange(len(text))
            return text[:where] + self._random.randbytes(3) + text[where:]
        return text

    def _altered(self, value: Any) -> Any:
        """With one part that is not as it should be."""
        match value:
            case dict() if value and self._random.random() < 0.9:
                name = self._random.choice(list(value))
                match self._random.randrange(4):
                    case 0:
                        return {key: part for key, part in value.items() if key != name}
                    case 1:
                        return {**value, self._text(): self._hostile()}
                    case _:
                        return {**value, name: self._altered(value[name])}
            case [first, *rest] if self._random.random() < 0.9:
                return [self._altered(first), *rest] * self._random.choice((1, 1, 2, 50))
            case _:
                return self._hostile()

    def _hostile(self) -> Any:
        return self._random.choice((self._random.choice(NUMBERS), self._text(), self._random.choice(OTHERS)))

    def _damaged(self) -> str:
        """A valid token with another character before the last one, whose unused bits mean nothing."""
        where = self._random.randrange(len(self._token) - 2)
        other = self._random.choice([char for char in "ABCxyz019-_." if char != self._token[where]])
        return self._token[:where] + other + self._token[where + 1 :]


def _json(body: bytes) -> dict[str, str | bytes]:
    return {"Content-Type": "application/json"} if body else {}
