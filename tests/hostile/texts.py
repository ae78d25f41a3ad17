"""Texts, numbers and bodies that have broken programs before."""

from typing import Any

TEXTS = (
    *("", " ", "\0", "a\0b", "\r\n", "x\r\nX-Injected: 1", "\x1b[2J", "\x7f", "\u202eexe", "\ufeff"),
    *("\u2028", "é" * 99, "'", "' OR 1=1 --", '"; DROP TABLE orders.orders; --', "$(id)", "`id`"),
    *("{{7*7}}", "${jndi:ldap://x}", "%s%n%x", "../../../etc/passwd", "..%2f..%2f", "/", "//", ".", ".."),
    *("?", "#", "a/b", "<script>", "&amp;", "]]>", "\\", "null", "true", "NaN", "Infinity", "-0", "1e309"),
    *("0x10", "1_000", "１２", "9" * 400, "-1", "1.5", "1,5", "x" * 300, "x" * 5_000, "漢" * 3_000),
    *("👩🏽" * 50, "e\u0301" * 100, "0001-01-01T00:00:00Z", "9999-12-31", "2010-13-45", "*", '"'),
    *("2010-12-01T25:61:61Z", "2010-12-01T08:26:00+99:99", "version:0", "version:-1", "version:9" * 9),
    *('W/"1"', '"1", "2"', "-9223372036854775809", "18446744073709551616", "undefined", "[object Object]"),
)
NUMBERS = (-1, 0, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**400, 0.1, -0.0, 1e308, 5e-324, 1.5)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": ""}, {"a": {"b": {}}}, [0] * 200)
# Bodies that are no JSON, or none that a parser should believe.
BODIES = (
    *(b"", b" ", b"{", b"}", b"[", b"nul", b"'a'", b"\xff\xfe{\x00}\x00", b"\xef\xbb\xbf{}", b"{}{}"),
    *(b"{}\n{}", b"\x00", b"NaN", b"Infinity", b"-", b"1e999", b"0" * 1000, b'"\\ud800"', b'"\\u0000"'),
    *(b'{"a":1,"a":2}', b'{"a":NaN}', b"[" * 20_000, b'{"a":' * 5_000, b'"' + b"x" * 70_000 + b'"'),
    *(b"<xml/>", b"a=1&b=2", b"\x80\x81\x82", b"--x\r\n", b'{"lines":[' + b"{}," * 3_000 + b"{}]}"),
    *(b"[]", b"null", b"true", b"1", b'"x"', b"/*c*/{}", b"{,}", b'{"a" "b"}'),
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "POST\t", "PRI")
TYPES = (
    *("application/json", "application/json", "application/json", "application/json; charset=utf-16"),
    *("text/plain", "application/xml", "multipart/form-data; boundary=x", "", "json", "\xff/\xff"),
    "application/x-www-form-urlencoded",
)
HEADERS = (
    *("Idempotency-Key", "If-Match", "If-None-Match", "X-Correlation-Id", "traceparent", "tracestate"),
    *("Durability", "Consistency-Token", "Accept", "Accept-Encoding", "Accept-Language", "Range", "Expect"),
    *("Origin", "Cookie", "Referer", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Via"),
    *("Forwarded", "X-Original-URL", "X-HTTP-Method-Override", "Upgrade", "TE", "Trailer", "Pragma"),
    *("DNT", "X" * 200, "X-Hostile"),
)
# Lines that no head has.
LINES = (
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding : chunked", b"Transfer-Encoding: xchunked"),
    *(b"Content-Length: 7", b"Content-Length: -1", b"Content-Length: 99999999999999999999"),
    *(b" folded: line", b"No-Colon", b": no name", b"Host: other.example", b"X: " + b"y" * 100_000),
    b"\r\n".join(b"X%d: y" % number for number in range(2000)),
)
# What is changed in a head: what stands there, and what stands there then.
CHANGES = (
    *((b"HTTP/1.1", b"HTTP/9.9"), (b"\r\n", b"\n"), (b" HTTP/1.1", b""), (b"Host: 127.0.0.1\r\n", b"")),
    *((b"Host: 127.0.0.1", b"Host: evil.example"), (b" /", b" http://evil.example/")),
    *((b" /", b" /" + b"a" * 70_000), (b"Bearer ", b"Bearer"), (b"Authorization", b"Authorization\0")),
)
_CHUNKED = b"POST /orders HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
# What never was a request.
STREAMS = (
    *(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", b"GET /\r\n\r\n", b"\r\n" * 5_000),
    *(_CHUNKED + b"FFFFFFFFFFFFFFFF\r\n", _CHUNKED + b"-1\r\nx\r\n0\r\n\r\n"),
    _CHUNKED + b"1;" + b"x" * 20_000 + b"\r\nx\r\n0\r\n\r\n",
    b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x85",
    b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 200,
)
# What an operator may paste.
TYPED = (
    *("[/boom]", "\x1b[2J\x1b]8;;http://x\x07", "'; DROP TABLE orders.orders; --", "../../../etc/passwd"),
    *("-1", "\u202e\u2066\u200b", "x" * 5_000, "$(id) `id` %s%n {0} ${jndi:ldap://x}", "\n\r\t", "\udc80"),
    *("é" * 200, "order.commands/-1/99999999999999999999", "orders:[bold", "order/../x", "{'a': 1}", " "),
)
