"""Paging backwards through the audit log, over HTTP: the newest event first."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final
from uuid import uuid4

import msgspec

from koordinator.api.codec import DecodeError, decode
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.koordlet.options import AuditOptions
from koordinator.koordlet.report.audit.log import CURRENT, AuditEvent, AuditLog, rotated_files
from koordinator.kube.pages import JSON, TEXT, Handler, Request, Response

logger = logging.getLogger(__name__)

DEFAULT_PAGE: Final = 256
_READER_SECONDS: Final = 600.0
_CHUNK_BYTES: Final = 64 << 10
_LINE_BYTES: Final = 1 << 20
"""A longer line is none of ours."""


class PageTokenError(KoordinatorError):
    """The token is unknown, or has expired."""


@dataclass(frozen=True, slots=True)
class Page:
    """Newest first. ``next_token`` is empty at the end of the log."""

    events: Sequence[AuditEvent]
    next_token: str


@dataclass(slots=True)
class _Reader:
    """A client that pages through the files as they were when it requested the first page."""

    descriptors: list[int]
    lines: Iterator[bytes]
    used_at: float

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


class AuditPages:
    """Serves pages to a few clients at once; one more replaces the client that began the longest ago."""

    def __init__(
        self, log: AuditLog, options: AuditOptions, clock: Clock, make_token: Callable[[], str] = lambda: str(uuid4())
    ) -> None:
        """``make_token`` returns a text that cannot be guessed."""
        self._log = log
        self._limit = options.readers
        self.events_per_page = options.events_per_page
        self._clock = clock
        self._make_token = make_token
        self._readers: dict[str, _Reader] = {}

    def page(self, token: str, size: int) -> Page:
        """The next ``size`` events under a token, the newest ones without a token; PageTokenError."""
        if token:
            reader = self._readers.get(token)
            if reader is None:
                raise PageTokenError(f"invalid pageToken {token}")
        else:
            token, reader = self._make_token(), self._open()
            self._readers[token] = reader
        reader.used_at = self._clock.monotonic()
        self.drop_expired()
        lines = list(islice(reader.lines, size))
        return Page(list(_events(lines)), token if len(lines) == size else "")

    def drop_expired(self) -> None:
        """Close the clients that have not requested a page for ten minutes, and the oldest of too many."""
        now = self._clock.monotonic()
        expired = [token for token, reader in self._readers.items() if now - reader.used_at > _READER_SECONDS]
        rest = [token for token in self._readers if token not in expired]
        for token in (*expired, *rest[: max(len(rest) - self._limit, 0)]):
            self._readers.pop(token).close()

    def close(self) -> None:
        while self._readers:
            self._readers.popitem()[1].close()

    def _open(self) -> _Reader:
        # What was done a moment ago is what people look for first.
        self._log.flush()
        descriptors = []
        with suppress(FileNotFoundError):
            for path in (f"{self._log.folder}/{CURRENT}", *rotated_files(self._log.folder)):
                with suppress(FileNotFoundError):
                    descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        return _Reader(descriptors, chain.from_iterable(map(lines_backwards, descriptors)), self._clock.monotonic())


def handler(pages: AuditPages | None) -> Handler:
    """The handler of ``/events?size=&pageToken=``; without an audit log every response is empty."""

    async def handle(request: Request) -> Response:
        if pages is None:
            return Response()
        size = _size(request.query.get("size", ""))
        if size is None:
            size = min(DEFAULT_PAGE, pages.events_per_page)
        if size < 0:
            return Response(status=400, text=f"size({size}) is negative\n")
        if size > pages.events_per_page:
            return Response(status=400, text=f"size({size}) exceeds the limit({pages.events_per_page})\n")
        try:
            page = pages.page(request.query.get("pageToken", ""), size)
        except PageTokenError as error:
            return Response(status=409, text=f"{error}\n")
        except OSError as error:
            logger.warning("the audit log cannot be read: %s", error)
            return Response(status=500, text=f"read events failed: {error}\n")
        return _respond(page, as_json="application/json" in request.headers.getall("Accept", []))

    return handle


def _respond(page: Page, *, as_json: bool) -> Response:
    if as_json:
        body = msgspec.json.encode({"NextPageToken": page.next_token, "Events": page.events})
        return Response(body=body, content_type=JSON)
    headers = {"Content-Type": TEXT}
    if page.next_token:
        headers["Next-Page-Token"] = page.next_token
    return Response(body=b"".join(msgspec.json.encode(event) + b"\n" for event in page.events), headers=headers)


def _size(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _events(lines: Sequence[bytes]) -> Iterator[AuditEvent]:
    for line in lines:
        # A line that is not ours is left out.
        with suppress(DecodeError):
            yield decode(line, AuditEvent)


def lines_backwards(descriptor: int) -> Iterator[bytes]:
    """The lines of a file from its present end to its beginning, but empty ones and ones that are too long."""
    position = os.fstat(descriptor).st_size
    rest = b""
    is_too_long = False
    while position > 0:
        start = max(position - _CHUNK_BYTES, 0)
        content = os.pread(descriptor, position - start, start) + rest
        position = start
        first, *lines = content.split(b"\n")
        if is_too_long and lines:
            lines.pop()
            is_too_long = False
        yield from (line for line in reversed(lines) if line)
        rest = first
        if len(rest) > _LINE_BYTES:
            rest, is_too_long = b"", True
    if rest and not is_too_long:
        yield rest
