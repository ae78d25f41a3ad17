"""Which requests no route sees: other hosts', other sites' pages', and bodies that are not JSON."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from infra.base.ports import HOST
from tests.unit.api.servers import Answering, code, exchange, post, served, status

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    hosts = "localhost,[::1],shop.example"
    with pytest.MonkeyPatch.context() as patch, served(Answering().app(), patch, allowed_hosts=hosts) as port:
        yield f"http://{HOST}:{port}"


def result_of(
    url: str, headers: dict[str, str], method: str = "POST", body: bytes = b"{}"
) -> tuple[int, str]:
    path = "/echo" if method == "POST" else "/health/live"
    response = httpx.request(method, url + path, content=body, headers={**JSON, **headers}, trust_env=False)
    problem = response.headers["content-type"] == "application/problem+json"
    return response.status_code, response.json()["code"] if problem else ""


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:1234", "localhost", "LocalHost:80", "shop.example", "[::1]:27401"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_configured_hosts_are_served(url: str, host: str, method: str) -> None:
    assert result_of(url, {"Host": host}, method) == (200, "")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "shop.example.evil", "127.0.0.2", "shop.exampl", "0.0.0.0"],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_another_host_is_misdirected(url: str, host: str, method: str) -> None:
    assert result_of(url, {"Host": host}, method) == (421, "wrong_host")


@pytest.mark.parametrize(
    "host", ["", "a b", "localhost:x", "localhost:123456", "user@localhost", "a,localhost"]
)
def test_a_malformed_host_is_a_bad_request(url: str, host: str) -> None:
    assert result_of(url, {"Host": host}, "GET") == (400, "malformed_host")


def test_a_repeated_host_header_is_refused(url: str) -> None:
    port = int(url.rpartition(":")[2])
    twice = post("/echo", b"{}", "Host: evil.example")
    assert code(exchange(port, twice)) == "malformed_host"
    assert code(
        exchange(port, twice.replace(b"Host: 127.0.0.1\r\n", b"").replace(b"Host: evil.example\r\n", b""))
    )
    assert status(exchange(port, b"GET /health/live HTTP/1.0\r\n\r\n")) == 200


def test_no_redirect_names_the_host_of_the_request(url: str) -> None:
    response = httpx.post(f"{url}/echo/", content=b"{}", headers=JSON, trust_env=False)
    assert (response.status_code, response.headers.get("location")) == (404, None)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://shop.example", "Host": "shop.example"},
        {"Origin": "https://Shop.example:8443", "Host": "shop.example:8443"},
        # behind a proxy that puts its own Host: the browser's word
        {"Origin": "https://shop.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_same_origin_pages_and_programs_may_write(url: str, headers: dict[str, str]) -> None:
    assert result_of(url, headers) == (200, "")


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "same-origin-not"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://shop.example", "Host": "shop.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[x"},
        {"Origin": "http://shop.example.evil", "Host": "shop.example"},
    ],
)
def test_pages_of_other_sites_may_not_write(url: str, headers: dict[str, str]) -> None:
    assert result_of(url, headers) == (403, "cross_site")
    assert result_of(url, headers, "GET", b"") == (200, "")


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "application/json; charset=utf-8",
        'Application/JSON;charset="UTF-8"',
        "application/merge-patch+json",
        "application/vnd.schemaregistry.v1+json",
    ],
)
def test_every_json_media_type_is_accepted(url: str, kind: str) -> None:
    assert result_of(url, {"Content-Type": kind}) == (200, "")


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "text/plain; application/json"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": "application/jsonp"},
        {"Content-Type": "application/json, text/plain"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": ""},
        {"Content-Encoding": "gzip"},
    ],
)
def test_other_media_types_are_refused(url: str, headers: dict[str, str]) -> None:
    assert result_of(url, headers) == (415, "unsupported_media_type")


def test_a_body_without_a_content_type_is_refused(url: str) -> None:
    port = int(url.rpartition(":")[2])
    request = post("/echo").replace(b"Content-Type: application/json\r\n", b"")
    response = exchange(port, request)
    assert (status(response), b"unsupported_media_type" in response) == (415, True)
    chunked = request.replace(b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n")
    assert status(exchange(port, chunked.removesuffix(b"{}") + b"2\r\n{}\r\n0\r\n\r\n")) == 415
    assert status(exchange(port, request.replace(b"Length: 2", b"Length: 0").removesuffix(b"{}"))) == 200
