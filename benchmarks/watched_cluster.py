"""An API server without a socket for one program: it lists, is watched, and takes what is written.

What it holds is text, so that it costs the program in the same process no garbage collection; the CPU that it takes
itself is known and can be taken off what is measured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from koordinator.api.codec import decode_any, encode
from koordinator.api.kinds import Kind
from koordinator.base.errors import KoordinatorError
from koordinator.kube.interface import PatchType
from koordinator.kube.pooled_transport import ResponseStream
from koordinator.kube.request import Request
from koordinator.kube.transport import Stream

Document = dict[str, Any]
_HEAD: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_PAGE: Final = 500


class WatchedCluster:
    """Stands for a Sender. ``own_seconds`` of CPU were its own; ``writes`` says how often what was written."""

    def __init__(self) -> None:
        self.own_seconds = 0.0
        self.writes: dict[str, int] = {}
        self._stored: dict[str, dict[str, bytes]] = {}
        self._made: dict[str, tuple[int, Callable[[int], Document]]] = {}
        self._streams: dict[str, ResponseStream] = {}
        self._version = 10_000_000

    def keep(self, kind: Kind[Any], documents: Iterable[Document], namespace: str = "") -> None:
        """Objects that may be written to."""
        self._stored[kind.path(namespace)] = {each["metadata"]["name"]: encode(each) for each in documents}

    def make(self, kind: Kind[Any], count: int, document: Callable[[int], Document]) -> None:
        """Objects of a large number, each made when it is requested. Who selects some of them by a field gets none."""
        self._made[kind.path()] = count, document

    def change(self, kind: Kind[Any], name: str, patch: Callable[[], Document]) -> None:
        """Somebody else changes an object."""
        with self._own_work():
            self._patch(kind.path(), name, patch())

    def once(self) -> WatchedCluster:
        return self

    def backlog(self) -> float:
        return 0.0

    async def call(self, request: Request) -> bytes:
        with self._own_work():
            url = urlsplit(request.target)
            if request.method == "GET":
                return self._list(url.path, parse_qs(url.query))
            return self._write(request, url.path)

    async def stream(self, request: Request) -> Stream:
        url = urlsplit(request.target)
        stream = ResponseStream(b"", request.target)
        if "fieldSelector" not in parse_qs(url.query):
            # What is selected by a field never changes here.
            self._streams[url.path] = stream
        stream.data_received(_HEAD)
        await stream.begin()
        return stream

    async def close(self) -> None:
        """There is nothing to close."""

    def _list(self, path: str, query: Mapping[str, Sequence[str]]) -> bytes:
        start = int(query.get("continue", ["0"])[0])
        if path in self._made:
            count, document = self._made[path]
            count = 0 if "fieldSelector" in query else count
            items = [encode(document(number)) for number in range(start, min(start + _PAGE, count))]
        else:
            stored = list(self._stored.get(path, {}).values())
            count, items = len(stored), stored[start : start + _PAGE]
        rest = f"{start + _PAGE}" if start + _PAGE < count else ""
        metadata = encode({"resourceVersion": "1", "continue": rest})
        return b'{"metadata":%b,"items":[%b]}' % (metadata, b",".join(items))

    def _write(self, request: Request, path: str) -> bytes:
        body = decode_any(request.body or b"{}")
        collection, name, subresource = _parts(path)
        if request.method == "POST":
            collection, name = path, body["metadata"]["name"]
        elif request.method != "PATCH" or request.content_type != PatchType.MERGE.value:
            raise KoordinatorError(f"{request.method} {request.target} as {request.content_type} is not to be expected")
        what = f"{request.method} {collection.rsplit('/', 1)[-1]}{subresource}"
        self.writes[what] = self.writes.get(what, 0) + 1
        return self._patch(collection, name, body)

    def _patch(self, collection: str, name: str, patch: Document) -> bytes:
        """What there is with a change, or the change itself if there is nothing."""
        stored = self._stored.setdefault(collection, {}).get(name)
        document = _merged(decode_any(stored) if stored is not None else {}, patch)
        self._version += 1
        uid = f"00000000-0000-4000-8002-{self._version:012d}"
        document["metadata"] = {"uid": uid, **document["metadata"], "resourceVersion": str(self._version)}
        text = self._stored[collection][name] = encode(document)
        self._notify(collection, "ADDED" if stored is None else "MODIFIED", text)
        return text

    def _notify(self, path: str, change: str, text: bytes) -> None:
        line = b'{"type":"%b","object":%b}\n' % (change.encode(), text)
        self._streams[path].data_received(b"%x\r\n%b\r\n" % (len(line), line))

    @contextmanager
    def _own_work(self) -> Iterator[None]:
        started = time.thread_time()
        try:
            yield
        finally:
            self.own_seconds += time.thread_time() - started


def _parts(path: str) -> tuple[str, str, str]:
    """The collection, the name, and the subresource with its slash."""
    collection, name = path.rsplit("/", 1)
    if name != "status":
        return collection, name, ""
    collection, name = collection.rsplit("/", 1)
    return collection, name, "/status"


def _merged(document: Document, patch: Document) -> Document:
    for key, value in patch.items():
        if value is None:
            document.pop(key, None)
        elif isinstance(value, dict):
            document[key] = _merged(document.get(key) or {}, value)
        else:
            document[key] = value
    return document


async def turns(count: int) -> None:
    """Let everything else go on."""
    for _ in range(count):
        await asyncio.sleep(0)
