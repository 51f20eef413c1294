"""Pages that programs serve: what a handler is given, what it returns, and which handler serves which path.

Requests and responses are small and held whole. That is all that health, metrics and explanations need, and it keeps a
general web framework, with some 9 MiB, out of programs that run on every node.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from multidict import CIMultiDict, MultiDict

from koordinator.api.codec import encode, to_document

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json; charset=utf-8"
ANY_METHOD: Final = "*"
_PARAMETER: Final = re.compile(r"\{(\w+)(?::([^{}]+))?\}")
_AUTHORITY: Final = re.compile(r"https?://[^/?]*", re.IGNORECASE)


class ClientName(NamedTuple):
    """Of the subject of a certificate, as the API server reads it."""

    user: str
    """The common name."""
    groups: tuple[str, ...]
    """The organizations."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request with its whole body."""

    method: str
    path: str
    """As sent, with percent-encoding."""
    query: MultiDict[str]
    headers: CIMultiDict[str]
    body: bytes = b""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The parts of the path that match the parameters of the route, decoded."""
    client: ClientName | None = None
    """Whose certificate the client has shown, if the server asks for one and it is good."""

    @classmethod
    def to(
        cls,
        method: str,
        target: str,
        headers: CIMultiDict[str],
        body: bytes = b"",
        client: ClientName | None = None,
    ) -> Request:
        """A request to a target as the first line of a request has it: a path and a query, or a URL."""
        path, _, query = _AUTHORITY.sub("", target, count=1).partition("?")
        asked = MultiDict(parse_qsl(query, keep_blank_values=True))
        return cls(method, path or "/", asked, headers, body, client=client)


class Response:
    """A response: a ``text``, a ``body``, or ``parts`` that are produced while they are sent.

    The content type is that of ``headers``, else ``content_type``, else plain text for a text and bytes otherwise.
    """

    __slots__ = ("body", "headers", "parts", "status")

    def __init__(
        self,
        *,
        status: int = 200,
        text: str | None = None,
        body: bytes = b"",
        parts: AsyncGenerator[bytes, None] | None = None,
        content_type: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.body = body if text is None else text.encode()
        self.parts = parts
        otherwise = "application/octet-stream" if text is None else TEXT
        self.headers = {"Content-Type": content_type or otherwise, **(headers or {})}


class PageError(Exception):
    """Ends a handler with a response other than the one that was requested."""

    def __init__(self, status: int, text: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, text)
        self.response = Response(status=status, text=text or f"{status}: {HTTPStatus(status).phrase}", headers=headers)


Handler = Callable[[Request], Awaitable[Response]]


class Routes:
    """The handlers by method and path. ``/a/{b}`` has a parameter of one path segment, ``/a/{b:.+}`` one that matches
    the regular expression. Paths without parameters come first, the others in the order in which they were added."""

    def __init__(self) -> None:
        self._fixed: dict[str, dict[str, Handler]] = {}
        self._with_parameters: dict[str, tuple[re.Pattern[str], dict[str, Handler]]] = {}

    def add(self, method: str, path: str, handler: Handler) -> None:
        """Serve a path; ValueError if a handler serves it already."""
        if "{" in path:
            _, handlers = self._with_parameters.setdefault(path, (_pattern(path), {}))
        else:
            handlers = self._fixed.setdefault(path, {})
        if method in handlers:
            raise ValueError(f"{method} {path} has a handler already")
        handlers[method] = handler

    async def respond(self, request: Request) -> Response:
        """What the handler of the request returns; PageError if there is none, or from the handler."""
        allowed: list[str] = []
        for parameters, handlers in self._matches(request.path):
            # A HEAD is a GET whose response is sent without its body.
            method = "GET" if request.method == "HEAD" else request.method
            handler = handlers.get(method) or handlers.get(ANY_METHOD)
            if handler is not None:
                return await handler(replace(request, parameters=parameters))
            allowed += handlers
        if allowed:
            raise PageError(405, headers={"Allow": ",".join(sorted(allowed))})
        raise PageError(404)

    def _matches(self, path: str) -> list[tuple[Mapping[str, str], dict[str, Handler]]]:
        fixed = self._fixed.get(path)
        found: list[tuple[Mapping[str, str], dict[str, Handler]]] = [] if fixed is None else [({}, fixed)]
        for pattern, handlers in self._with_parameters.values():
            match = pattern.fullmatch(path)
            if match is not None:
                found.append(({name: unquote(part) for name, part in match.groupdict().items()}, handlers))
        return found


def _pattern(path: str) -> re.Pattern[str]:
    """The regular expression of a path with parameters."""
    written, end = "", 0
    for parameter in _PARAMETER.finditer(path):
        written += re.escape(path[end : parameter.start()])
        written += f"(?P<{parameter[1]}>{parameter[2] or '[^/]+'})"
        end = parameter.end()
    return re.compile(written + re.escape(path[end:]))


def json_response(document: Any, status: int = 200) -> Response:
    """Return a JSON response with a document, which may contain structs."""
    return Response(status=status, body=encode(to_document(document)), content_type=JSON)
