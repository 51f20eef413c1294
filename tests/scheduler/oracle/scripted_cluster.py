"""An API server in the same process, of whose watches and bindings the test decides: events come late, twice or never,
and a Binding is done, refused, never answered, or done without an answer.

Every change is kept in one history. A watch is a position in it, so that what a watch has not been shown yet is what
lies between its position and the end.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from koordinator.api.codec import DecodeError, convert, encode
from koordinator.api.kinds import PODS, RESERVATIONS, Kind
from koordinator.base.clock import Clock
from koordinator.cluster.verbs.selection import parse_field_selector
from koordinator.kube.errors import ApiStatusError, TransportError
from koordinator.kube.interface import ListPage, Malformed, PatchType, WatchEvent
from tests.costs.scripted_api import Document, ScriptedApi, is_selected

Fault = Literal["", "refused", "conflict", "unavailable", "lost before", "lost after", "unanswered"]

_CODES: Final[dict[str, int]] = {"refused": 403, "conflict": 409, "unavailable": 503}


class Change(NamedTuple):
    """``before`` is None of a new object, ``after`` of one that is gone."""

    kind: Kind[Any]
    before: Document | None
    after: Document | None


@dataclass(slots=True)
class Unanswered:
    """A Binding that the server has and has not carried out yet."""

    document: Document
    namespace: str
    name: str
    answer: asyncio.Future[Fault]


class ScriptedCluster(ScriptedApi):
    """``binding_fault`` and ``patch_fault`` are what happens to the next requests of the scheduler."""

    def __init__(self) -> None:
        super().__init__()
        self.binding_fault: Fault = ""
        self.patch_fault: Fault = ""
        self.unanswered: dict[str, Unanswered] = {}
        """By uid of the pod."""
        self.history: list[Change] = []
        self.ours: set[str] = set()
        """The uids of pods and Reservations to which the scheduler gave their node."""
        self._late: dict[str, int] = {}
        """Plural -> the length of the history that its watches are shown."""
        self._expired: dict[str, int] = {}
        """Plural -> watches that have been shown less of the history have to list again."""
        self._repeated: dict[str, list[tuple[asyncio.Event, list[int]]]] = {}
        self._news: set[asyncio.Event] = set()
        self._uids = 0

    def client(self, clock: Clock) -> ScriptedCluster:
        return self

    # What happens in the cluster.

    def put(self, kind: Kind[Any], document: Document) -> None:
        metadata = dict(document["metadata"])
        if kind.namespaced:
            metadata.setdefault("namespace", "default")
        known = self.found(kind, metadata["name"], metadata.get("namespace", ""))
        if "uid" not in metadata:
            self._uids += known is None
            metadata["uid"] = known["metadata"]["uid"] if known else f"uid-{metadata['name']}-{self._uids}"
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        self._change(kind, known, {**document, "metadata": metadata})

    def remove(self, kind: Kind[Any], name: str, namespace: str = "") -> None:
        known = self.found(kind, name, namespace)
        if known is not None:
            self._change(kind, known, None)

    def found(self, kind: Kind[Any], name: str, namespace: str = "") -> Document | None:
        return self._objects.get(kind.plural, {}).get(f"{namespace}/{name}")

    def all(self, kind: Kind[Any]) -> list[Document]:
        return list(self._objects.get(kind.plural, {}).values())

    def objects(self, kind: Kind[Any]) -> list[Any]:
        """Those that can be decoded."""
        found = [_converted(kind, document) for document in self.all(kind)]
        return [each for each in found if not isinstance(each, Malformed)]

    def _change(self, kind: Kind[Any], before: Document | None, after: Document | None) -> None:
        self._revision += 1
        some = after or before
        assert some is not None
        metadata = some["metadata"] = {**some["metadata"], "resourceVersion": str(self._revision)}
        key = f"{metadata.get('namespace', '')}/{metadata['name']}"
        objects = self._objects.setdefault(kind.plural, {})
        if after is None:
            objects.pop(key)
            before = some = {**some}
        else:
            objects[key] = after
        self.history.append(Change(kind, before, after))
        self._wake()

    def _wake(self) -> None:
        for event in self._news:
            event.set()

    # What watches are shown.

    @property
    def is_late(self) -> bool:
        """Whether some watch has not been shown all changes."""
        return bool(self._late)

    def be_late(self, kind: Kind[Any]) -> None:
        """Watches of the kind are shown nothing until they ``catch_up``."""
        self._late.setdefault(kind.plural, len(self.history))

    def catch_up(self, kind: Kind[Any]) -> None:
        self._late.pop(kind.plural, None)
        self._wake()

    def lose(self, kind: Kind[Any]) -> None:
        """The watches of the kind have expired: what they have not been shown is to be found out by a new list."""
        self._expired[kind.plural] = len(self.history) + 1
        self.catch_up(kind)

    def repeat(self, kind: Kind[Any], number: int) -> None:
        """Show an event of the kind once more that watches were shown before."""
        shown = [index for index, change in enumerate(self.history) if change.kind.plural == kind.plural]
        shown = [index for index in shown if index < self._late.get(kind.plural, len(self.history))]
        for event, repeated in self._repeated.get(kind.plural, ()) if shown else ():
            repeated.append(shown[number % len(shown)])
            event.set()

    async def watch(
        self,
        kind: Kind[Any],
        namespace: str = "",
        field_selector: str = "",
        resource_version: str = "",
        **_: Any,
    ) -> AsyncIterator[WatchEvent[Any]]:
        selection, since = parse_field_selector(field_selector), int(resource_version)
        position = since
        news, repeated = asyncio.Event(), list[int]()
        watches = self._repeated.setdefault(kind.plural, [])
        watches.append((news, repeated))
        self._news.add(news)
        try:
            while True:
                news.clear()
                if position < self._expired.get(kind.plural, 0) - 1:
                    self._note_listing(kind)
                    raise ApiStatusError(410, "Expired", "too old resource version")
                while repeated:
                    index = repeated.pop()
                    if since <= index < position and (again := self._event(index, kind, selection)) is not None:
                        yield again
                while position < self._late.get(kind.plural, len(self.history)):
                    event = self._event(position, kind, selection)
                    position += 1
                    if event is not None:
                        yield event
                await news.wait()
        finally:
            self._news.discard(news)
            watches.remove((news, repeated))

    def _note_listing(self, kind: Kind[Any]) -> None:
        """A list shows everything."""
        self._late.pop(kind.plural, None)

    def _event(self, index: int, kind: Kind[Any], selection: Any) -> WatchEvent[Any] | None:
        change, version = self.history[index], str(index + 1)
        if change.kind.plural != kind.plural:
            return None
        was, now = (each is not None and is_selected(each, selection) for each in (change.before, change.after))
        if now:
            return WatchEvent("MODIFIED" if was else "ADDED", _converted(kind, change.after), version)
        if not was:
            return None
        gone = {**(change.before or {})}
        gone["metadata"] = {**gone["metadata"], "resourceVersion": version}
        return WatchEvent("DELETED", _converted(kind, gone), version)

    async def list(self, kind: Kind[Any], namespace: str = "", field_selector: str = "", **_: Any) -> ListPage[Any]:
        selection = parse_field_selector(field_selector)
        found = [_converted(kind, document) for document in self.all(kind) if is_selected(document, selection)]
        malformed = [each for each in found if isinstance(each, Malformed)]
        items = [each for each in found if not isinstance(each, Malformed)]
        return ListPage(items, malformed, str(self._revision), "", None)

    # What the scheduler writes.

    async def create(
        self,
        kind: Kind[Any],
        body: Any,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Any:
        if dry_run:
            return body
        document = json.loads(body if isinstance(body, bytes | str) else encode(body))
        if subresource == "eviction":
            self.remove(kind, name, namespace)
        elif subresource == "binding":
            await self._bind(document, namespace, name)
        elif not subresource:
            self.put(kind, document)
        return None

    async def _bind(self, document: Document, namespace: str, name: str) -> None:
        fault, uid = self.binding_fault, document["metadata"]["uid"]
        if fault == "unanswered":
            answer: asyncio.Future[Fault] = asyncio.get_running_loop().create_future()
            self.unanswered[uid] = Unanswered(document, namespace, name, answer)
            fault = await answer
        _fail_before(fault)
        self._carry_out(document, namespace, name)
        self.ours.add(uid)
        _fail_after(fault)

    def answer(self, fault: Fault) -> None:
        """All Bindings that wait for an answer get this one. One whose client has gone away may be carried out."""
        for waiting in self.unanswered.values():
            if not waiting.answer.done():
                waiting.answer.set_result(fault)
            elif waiting.answer.cancelled() and fault in ("", "lost after"):
                with suppress(ApiStatusError):
                    self._carry_out(waiting.document, waiting.namespace, waiting.name)
        self.unanswered.clear()

    def _carry_out(self, document: Document, namespace: str, name: str) -> None:
        pod, uid = self.found(PODS, name, namespace), document["metadata"]["uid"]
        if pod is None:
            raise ApiStatusError(404, "NotFound", f"pods {name} not found")
        if pod["metadata"]["uid"] != uid or pod["spec"].get("nodeName"):
            raise ApiStatusError(409, "Conflict", "the pod is another one, or has a node")
        annotations = {**pod["metadata"].get("annotations", {}), **document["metadata"].get("annotations", {})}
        bound = {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}
        self.put(PODS, {**bound, "spec": {**pod["spec"], "nodeName": document["target"]["name"]}})

    async def patch(
        self, kind: Kind[Any], name: str, body: Any, patch_type: PatchType, namespace: str = "", **_: Any
    ) -> Any:
        _fail_before(self.patch_fault)
        if self.found(kind, name, namespace) is None:
            raise ApiStatusError(404, "NotFound", f"{kind.plural} {name} not found")
        patched = await super().patch(kind, name, body, patch_type, namespace)
        if kind is RESERVATIONS and patched.status.node_name:
            self.ours.add(patched.metadata.uid)
        _fail_after(self.patch_fault)
        return patched

    async def delete(self, kind: Kind[Any], name: str, namespace: str = "", **_: Any) -> None:
        if self.found(kind, name, namespace) is None:
            raise ApiStatusError(404, "NotFound", f"{kind.plural} {name} not found")
        self.remove(kind, name, namespace)


def _fail_before(fault: Fault) -> None:
    """Of a request that is not carried out."""
    if fault == "lost before":
        raise TransportError("connection reset")
    if fault in _CODES:
        raise ApiStatusError(_CODES[fault], fault, fault)


def _fail_after(fault: Fault) -> None:
    if fault == "lost after":
        raise TransportError("connection reset")


def _converted(kind: Kind[Any], document: Document | None) -> Any:
    assert document is not None
    try:
        return convert(document, kind.type)
    except DecodeError as error:
        metadata, spec = document["metadata"], document.get("spec", {})
        place = spec.get("nodeName", ""), document.get("status", {}).get("phase", "")
        identity = (metadata.get("namespace", ""), metadata["name"], metadata["uid"], metadata["resourceVersion"])
        return Malformed(kind, *identity, str(error), *place)
