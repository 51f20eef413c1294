"""Who owns whom: the owner references of all stored objects, kept current as they are written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec

from koordinator.cluster.storage.interface import Change, Stored
from koordinator.cluster.verbs.delete import FOREGROUND, ORPHAN

_WITH_OWNERS: Final = b'"ownerReferences"'
_BEING_DELETED: Final = b'"deletionTimestamp"'


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", gc=False):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    block_owner_deletion: bool | None = None


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """What of an object matters to its owners and its dependents."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None
    deletion_timestamp: str | None = None

    @property
    def owners(self) -> tuple[OwnerReference, ...]:
        return self.owner_references or ()

    @property
    def is_orphaning(self) -> bool:
        """Whether it goes once its dependents have forgotten it."""
        return self.deletion_timestamp is not None and ORPHAN in (self.finalizers or ())

    @property
    def is_waiting(self) -> bool:
        """Whether it goes once its dependents are gone."""
        return self.deletion_timestamp is not None and FOREGROUND in (self.finalizers or ())


class _Object(msgspec.Struct):
    metadata: Metadata


_decode = msgspec.json.Decoder(_Object).decode


def metadata_of(stored: Stored) -> Metadata:
    """Raises msgspec.DecodeError for an object that cannot be read."""
    return _decode(stored.value).metadata


class DependencyGraph:
    """By storage key and uid. Objects that own nothing, are owned by nothing and are not being deleted cost nothing."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[OwnerReference, ...]] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        self._leaving: dict[str, str] = {}
        """uid -> key of each owner that waits for its dependents."""
        self._gone: set[str] = set()
        """Owners that were deleted, as long as somebody refers to them."""
        self._queue: dict[str, None] = {}

    def load(self, objects: Iterable[Stored]) -> None:
        """Begin anew, with all objects."""
        for each in (self._owners, self._dependents, self._leaving, self._gone, self._queue):
            each.clear()
        for stored in objects:
            self._note(Change("created", stored, None))

    def apply(self, changes: Sequence[Change]) -> None:
        """Follow what was written."""
        for change in changes:
            self._note(change)

    def take(self, count: int) -> list[str]:
        """Up to ``count`` of the objects that are to be looked at, oldest first."""
        taken = list(islice(self._queue, count))
        for key in taken:
            del self._queue[key]
        return taken

    def add(self, key: str) -> None:
        """Look at an object soon."""
        self._queue[key] = None

    def dependents_of(self, uid: str) -> Collection[str]:
        """The keys of the objects that refer to an owner."""
        return list(self._dependents.get(uid, ()))

    def has_dependents(self, uid: str) -> bool:
        return uid in self._dependents

    def was_deleted(self, uid: str) -> bool:
        """Whether the owner has been seen to go. It may also have gone before anybody looked."""
        return uid in self._gone

    @property
    def waiting(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self._queue)

    def _note(self, change: Change) -> None:
        key, value = change.key, change.current.value
        is_gone = change.type == "deleted"
        if not is_gone and key not in self._owners and _WITH_OWNERS not in value and _BEING_DELETED not in value:
            return
        try:
            metadata = metadata_of(change.current)
        except msgspec.DecodeError:
            # The loops and verbs that serve the object say so; nobody may lose it for that.
            return
        self._set_owners(key, () if is_gone else metadata.owners)
        if is_gone:
            self._forget(key, metadata.uid)
        elif metadata.is_orphaning or metadata.is_waiting:
            self._leave(key, metadata.uid)

    def _set_owners(self, key: str, owners: tuple[OwnerReference, ...]) -> None:
        before = self._owners.pop(key, ())
        if owners:
            self._owners[key] = owners
        if before == owners:
            return
        for owner in before:
            dependents = self._dependents.get(owner.uid, {})
            dependents.pop(key, None)
            if not dependents:
                self._dependents.pop(owner.uid, None)
                self._gone.discard(owner.uid)
            if owner.uid in self._leaving:
                self.add(self._leaving[owner.uid])
        for owner in owners:
            self._dependents.setdefault(owner.uid, {})[key] = None
        if owners:
            self.add(key)

    def _forget(self, key: str, uid: str) -> None:
        self._queue.pop(key, None)
        self._leaving.pop(uid, None)
        if uid in self._dependents:
            self._gone.add(uid)
            self._queue |= self._dependents[uid]

    def _leave(self, key: str, uid: str) -> None:
        if self._leaving.get(uid) == key:
            return
        self._leaving[uid] = key
        self._queue |= self._dependents.get(uid, {})
        self.add(key)
