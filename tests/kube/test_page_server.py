"""What the server of pages reads and writes, byte by byte."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest
from multidict import CIMultiDict

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.kube.pages import PageError, Request, Response, Routes
from koordinator.kube.serving import HealthServer
from tests.waiting import PATIENCE

END = b"\r\n\r\n"
LONGEST_BODY = 1 << 20


async def echo(request: Request) -> Response:
    return Response(body=request.method.encode() + b" " + request.body)


async def parts(request: Request) -> Response:
    async def made() -> AsyncGenerator[bytes, None]:
        yield b"one"
        yield b""
        yield b"two"

    return Response(parts=made(), content_type="text/plain")


async def failing(request: Request) -> Response:
    raise RuntimeError("a secret")


def sent(data: bytes) -> bytes:
    """All that a server says to a client that sends this and nothing more."""

    async def scenario() -> bytes:
        server = HealthServer(Metrics(), connections=ProgramConnections(Metrics(), ManualClock()))
        server.add_route("/page", echo, "PUT")
        server.add_route("/parts", parts)
        server.add_route("/failing", failing)
        await server.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.bound_port)
            writer.write(data)
            said = await reader.read()
            writer.close()
        finally:
            await server.stop()
        return said

    async def in_time() -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await scenario()

    return asyncio.run(in_time())


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, *headers, "", ""]).encode()


def test_a_response_says_what_it_is_how_long_it_is_and_when_it_was_made() -> None:
    headers = ("Content-Type: text/plain; charset=utf-8", "X-Content-Type-Options: nosniff", "Content-Length: 2")
    expected = head("HTTP/1.1 200 OK", *headers, "Date: Thu, 01 Jan 2026 00:00:00 GMT", "Connection: close") + b"ok"
    assert sent(head("GET /healthz HTTP/1.1", "Connection: close")) == expected


def test_requests_that_come_together_are_served_in_their_order() -> None:
    last = head("PUT /page HTTP/1.1", "Content-Length: 1", "Connection: close") + b"2"
    said = sent(head("PUT /page HTTP/1.1", "Content-Length: 1") + b"1" + last)
    assert said.index(b"PUT 1") < said.index(b"PUT 2")


def test_an_old_client_expects_the_end() -> None:
    assert sent(head("GET /healthz HTTP/1.0")).endswith(END + b"ok")


def test_a_head_is_a_get_without_its_body() -> None:
    said = sent(head("HEAD /healthz HTTP/1.1", "Connection: close"))
    assert b"Content-Length: 2\r\n" in said
    assert said.endswith(END)


def test_a_body_may_come_in_chunks() -> None:
    request = head("PUT /page HTTP/1.1", "Transfer-Encoding: chunked", "Connection: close")
    assert sent(request + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n").endswith(END + b"PUT abc")


def test_a_client_that_asks_may_send_its_body() -> None:
    request = head("PUT /page HTTP/1.1", "Content-Length: 1", "Expect: 100-continue", "Connection: close")
    assert sent(request + b"x").startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


def test_a_url_is_as_good_as_a_path() -> None:
    assert sent(head("GET http://h:1/healthz?verbose HTTP/1.0")).endswith(b"healthz check passed\n")


def test_parts_are_sent_as_chunks() -> None:
    said = sent(head("GET /parts HTTP/1.1", "Connection: close"))
    assert b"Transfer-Encoding: chunked\r\n" in said
    assert said.endswith(END + b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")


def test_parts_for_an_old_client_end_with_the_connection() -> None:
    said = sent(head("GET /parts HTTP/1.0"))
    assert b"Transfer-Encoding" not in said
    assert said.endswith(END + b"onetwo")


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (head("GET /none HTTP/1.0"), b"404 Not Found"),
        (head("GET /page HTTP/1.0"), b"405 Method Not Allowed"),
        (head("PUT /page HTTP/1.1", f"Content-Length: {LONGEST_BODY + 1}") + bytes(LONGEST_BODY + 1), b"413 "),
        (head("GET /healthz HTTP/1.1", "A: " + "x" * (1 << 18)), b"413 "),
        (head("PUT /page HTTP/1.1", "Content-Length: 1", "Content-Length: 2"), b"400 Bad Request"),
        (head("PUT /page HTTP/1.1", "Content-Length: 1", "Transfer-Encoding: chunked"), b"400 Bad Request"),
        (head("PUT /page HTTP/1.1", "Content-Length: -1"), b"400 Bad Request"),
        (head("GET /healthz HTTP/1.1", "A : b"), b"400 Bad Request"),
        (head("GET /healthz HTTP/1.1", "A: b\nC: d"), b"400 Bad Request"),
        (head("GET /healthz HTTP/1.1", "A: b", " c"), b"400 Bad Request"),
        (head("GET  /healthz HTTP/1.1"), b"400 Bad Request"),
        (head("GET /healthz HTTP/2.0"), b"400 Bad Request"),
        (head("GET /healthz"), b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400 Bad Request"),
    ],
)
def test_what_cannot_be_served_is_refused_with_its_status(request_head: bytes, status: bytes) -> None:
    assert sent(request_head).startswith(b"HTTP/1.1 " + status)


def test_a_path_of_other_methods_says_which() -> None:
    assert b"Allow: PUT\r\n" in sent(head("GET /page HTTP/1.0"))


def test_a_handler_that_fails_is_logged_and_says_nothing_of_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        said = sent(head("GET /failing HTTP/1.1") + head("GET /healthz HTTP/1.1", "Connection: close"))
    assert said.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"a secret" not in said
    assert [record.getMessage() for record in caplog.records] == ["GET /failing has failed"]
    assert said.endswith(END + b"ok")


def routed(path: str, *patterns: str, method: str = "GET") -> tuple[str, dict[str, str]]:
    """The pattern that a path is served by, and its parameters."""
    routes = Routes()
    found: dict[str, str] = {}

    def add(pattern: str) -> None:
        async def handle(request: Request) -> Response:
            found.update(request.parameters)
            return Response(text=pattern)

        routes.add("GET", pattern, handle)

    for pattern in patterns:
        add(pattern)
    request = Request.to(method, path, CIMultiDict())
    return asyncio.run(routes.respond(request)).body.decode(), found


@pytest.mark.parametrize(
    ("path", "pattern", "parameters"),
    [
        ("/a/b", "/a/b", {}),
        ("/a/c", "/a/{x}", {"x": "c"}),
        ("/a/c%2Fd%20e", "/a/{x}", {"x": "c/d e"}),
        ("/a/c/d", "/a/{rest:.+}", {"rest": "c/d"}),
        ("/v1.0/x", "/v1.0/{x}", {"x": "x"}),
    ],
)
def test_a_path_without_parameters_comes_first_then_their_order(
    path: str, pattern: str, parameters: dict[str, str]
) -> None:
    assert routed(path, "/a/{x}", "/a/{rest:.+}", "/v1.0/{x}", "/a/b") == (pattern, parameters)


def test_the_rest_of_a_path_is_taken_to_the_letter() -> None:
    with pytest.raises(PageError):
        routed("/v1x0/x", "/v1.0/{x}")


def test_a_path_has_one_handler() -> None:
    with pytest.raises(ValueError, match=r"GET /a/\{x\} has a handler already"):
        routed("/a", "/a/{x}", "/a/{x}")
