"""The cached objects of one selection: it applies lists, watch events and the responses to the program's own writes,
and notifies handlers consistently.

An object is added once, updated while its uid stays the same, and deleted once; one that was recreated under its name
is deleted first. Late, repeated and reordered events have no effect, and changes during a disconnection are reported as
the difference to the next list.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, ObjectMeta
from koordinator.api.pod import Pod
from koordinator.kube.handlers import HandlerSet
from koordinator.kube.interface import Malformed, WatchEvent
from koordinator.kube.store import Store

# The order of resourceVersions, and the tombstones of deleted objects.
#
# Kubernetes defines resourceVersions as opaque, yet all servers (and, since 1.35, the API's contract) use decimal
# numbers that increase; others have no order here and are assumed to arrive in order.

_FOR_EVER: Final = str(1 << 64)
"""Newer than any version: an object that is gone never comes back under its uid."""


def is_older(version: str, than: str) -> bool:
    """Return whether ``version`` is certainly older than ``than``."""
    if version == than:
        return False
    try:
        return int(version) < int(than)
    except ValueError:
        return False


def newest(one: str, other: str) -> str:
    """Return the newer of the two; ``other`` if they have no order."""
    return one if is_older(other, one) else other


class Tombstones:
    """The latest deletions by uid, so that a late or repeated event cannot bring a deleted object back.

    Bounded: only events that are still in flight can be late, and those are few.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = capacity
        self._versions: OrderedDict[str, str] = OrderedDict()

    def add(self, uid: str, version: str) -> None:
        """Record that the object with ``uid`` was deleted at ``version``."""
        if not uid:
            return
        self._versions[uid] = newest(self._versions.pop(uid, version), version)
        if len(self._versions) > self._capacity:
            self._versions.popitem(last=False)

    def covers(self, uid: str, version: str) -> bool:
        """Return whether the object had been deleted by ``version``."""
        gone = self._versions.get(uid) if self._versions else None
        return gone is not None and (version == gone or is_older(version, gone))

    def discard(self, uid: str) -> None:
        """Remove a deletion, because the object is back (it stopped matching a selector and matches it again)."""
        if self._versions:
            self._versions.pop(uid, None)

    def clear(self) -> None:
        self._versions.clear()


logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)


@dataclass(slots=True)
class InformerStatistics:
    """Counters since the start."""

    added: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0
    """Events without new information: late, repeated or out of order."""
    malformed: int = 0


class ObjectCache(Generic[T]):
    """Implements ``reflector.Sink``. ``transform`` is applied before storing."""

    def __init__(self, kind: Kind[T], store: Store[T], transform: Callable[[T], T] | None) -> None:
        self.store = store
        self.handlers: HandlerSet[T] = HandlerSet(kind.name)
        self.statistics = InformerStatistics()
        self.synced = asyncio.Event()
        """Set once handlers have been notified of a whole list."""
        self.malformed: dict[str, Malformed] = {}
        """By key: the objects that exist but cannot be decoded."""
        self._kind = kind
        self._transform = transform
        self._tombstones = Tombstones()
        self._listed: set[str] = set()
        self._authoritative = False

    def begin_replace(self, *, authoritative: bool) -> None:
        self._listed = set()
        self._authoritative = authoritative
        if authoritative:
            self._tombstones.clear()

    def replace_page(self, items: Sequence[T], malformed: Sequence[Malformed]) -> None:
        listed = self._listed
        for obj in items:
            key = obj.metadata.key
            listed.add(key)
            self._upsert(key, obj)
        for broken in malformed:
            listed.add(_key_of(broken))
            self._take_malformed(broken)

    def end_replace(self, version: str) -> None:
        listed = self._listed
        for key in [key for key in self.store if key not in listed and not self._is_written_since(key, version)]:
            self._delete(key, version)
        for key in [key for key in self.malformed if key not in listed]:
            self.handlers.readable(key, self.malformed.pop(key))
        self._listed = set()
        self._authoritative = False
        self.synced.set()

    def _is_written_since(self, key: str, version: str) -> bool:
        """Whether this program has written the object after the list was made."""
        stored = self.store.get(key)
        return stored is not None and not self._authoritative and is_older(version, stored.metadata.resource_version)

    def put(self, obj: T) -> None:
        """The server has responded with ``obj``, which no list and no watch has shown so far."""
        self._upsert(obj.metadata.key, obj)

    def remove(self, key: str, uid: str) -> None:
        """The server has responded that the object is gone."""
        stored = self.store.get(key)
        if stored is not None and stored.metadata.uid == uid:
            self._delete(key, _FOR_EVER)
        else:
            self._tombstones.add(uid, _FOR_EVER)

    def apply(self, event: WatchEvent[T]) -> None:
        obj = event.object
        if obj is None:
            return
        if isinstance(obj, Malformed):
            if event.type == "DELETED":
                self._take_deletion(_key_of(obj), obj.uid, event.resource_version)
            else:
                self._take_malformed(obj)
        elif event.type == "DELETED":
            self._take_deletion(obj.metadata.key, obj.metadata.uid, event.resource_version)
        else:
            self._upsert(obj.metadata.key, obj)

    def _upsert(self, key: str, obj: T) -> None:
        metadata, old = obj.metadata, self.store.get(key)
        uid, version = metadata.uid, metadata.resource_version
        if (
            (old is not None and self._knows_newer(old.metadata, uid, version))
            or self._tombstones.covers(uid, version)
            or (self.malformed and self._is_unreadable_since(key, version))
        ):
            self.statistics.ignored += 1
            return
        if old is not None and old.metadata.uid != uid:
            self._delete(key, version)
            old = None
        stored = self._stored(key, obj)
        if stored is None:
            return
        broken = self.malformed.pop(key, None) if self.malformed else None
        if old is None:
            self._tombstones.discard(uid)
            self.statistics.added += 1
            self.handlers.added(key, stored, not self.synced.is_set())
        else:
            self.statistics.updated += 1
            self.handlers.updated(key, old, stored)
        if broken is not None:
            self.handlers.readable(key, broken)

    def _knows_newer(self, known: ObjectMeta, uid: str, version: str) -> bool:
        if version == known.resource_version and uid == known.uid:
            return True
        return not self._authoritative and is_older(version, known.resource_version)

    def _is_unreadable_since(self, key: str, version: str) -> bool:
        broken = self.malformed.get(key)
        return broken is not None and not self._authoritative and is_older(version, broken.resource_version)

    def _stored(self, key: str, obj: T) -> T | None:
        """Transform, index and store the object; None if the program's transform or index function raises."""
        try:
            transformed = self._transform(obj) if self._transform is not None else obj
            self.store.put(key, transformed)
        except Exception as error:
            logger.exception("%s %s could not be stored", self._kind.name, key)
            metadata = obj.metadata
            identity = (metadata.namespace, metadata.name, metadata.uid, metadata.resource_version)
            text = f"{type(error).__name__}: {error}"
            place = (obj.spec.node_name, obj.status.phase) if isinstance(obj, Pod) else ()
            self._take_malformed(Malformed(self._kind, *identity, text, *place))
            return None
        return transformed

    def _take_malformed(self, broken: Malformed) -> None:
        key = _key_of(broken)
        stored, known = self.store.get(key), self.malformed.get(key)
        if known is not None and (known.uid, known.resource_version) == (broken.uid, broken.resource_version):
            return
        if self._tombstones.covers(broken.uid, broken.resource_version) or self._is_unreadable_since(
            key, broken.resource_version
        ):
            self.statistics.ignored += 1
            return
        if stored is not None and is_older(broken.resource_version, stored.metadata.resource_version):
            return
        if stored is not None and broken.uid and stored.metadata.uid != broken.uid:
            self._delete(key, broken.resource_version)
        self.malformed[key] = broken
        self.statistics.malformed += 1
        logger.warning("%s %s is not readable and skipped: %s", self._kind.name, key, broken.error)
        self.handlers.malformed(key, broken)

    def _take_deletion(self, key: str, uid: str, version: str) -> None:
        self._tombstones.add(uid, version)
        broken, old = self.malformed.get(key), self.store.get(key)
        if broken is not None and broken.uid != uid and is_older(version, broken.resource_version):
            broken = None
        if broken is not None:
            del self.malformed[key]
        if old is None or (old.metadata.uid != uid and is_older(version, old.metadata.resource_version)):
            self.statistics.ignored += broken is None
        else:
            self._delete(key, version)
        if broken is not None:
            self.handlers.readable(key, broken)

    def _delete(self, key: str, version: str) -> None:
        old = self.store.remove(key)
        if old is None:
            return
        self._tombstones.add(old.metadata.uid, version)
        self.statistics.deleted += 1
        self.handlers.deleted(key, old)


def _key_of(broken: Malformed) -> str:
    return f"{broken.namespace}/{broken.name}" if broken.namespace else broken.name
