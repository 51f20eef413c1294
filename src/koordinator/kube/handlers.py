"""The handlers of an informer: called in the order of their registration, none able to stop the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from koordinator.api.meta import Object
from koordinator.kube.interface import Malformed

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)
T_contra = TypeVar("T_contra", bound=Object, contravariant=True)


TRIES: Final = 8
"""So often a handler that failed on an object is notified of it again."""


class AddHandler(Protocol[T_contra]):
    """``initial``: the object was there before the informer was in sync (or before the handler was registered)."""

    def __call__(self, obj: T_contra, initial: bool, /) -> None: ...


UpdateHandler = Callable[[T, T], None]
"""(old, new) of one uid."""
DeleteHandler = Callable[[T], None]
"""The object as handlers saw it last."""
MalformedHandler = Callable[[Malformed], None]
"""An object that cannot be decoded, once per version. The last readable version, if any, stays in the store."""
ReadableHandler = Callable[[Malformed], None]
"""An object that could not be decoded, as it was last, and now can be, or is gone."""


@dataclass(frozen=True, slots=True, eq=False)
class Registration(Generic[T]):
    """One set of handlers."""

    name: str
    on_add: AddHandler[T] | None
    on_update: UpdateHandler[T] | None
    on_delete: DeleteHandler[T] | None
    on_malformed: MalformedHandler | None
    on_readable: ReadableHandler | None = None


@dataclass(slots=True)
class _Missed(Generic[T]):
    """A notification of an object on which a handler failed, the last one."""

    seen: T | None
    """The object as the handler knew it before; None when it did not know it."""
    last: T
    initial: bool
    tries: int = 0


class HandlerSet(Generic[T]):
    """All handlers of one informer. ``errors`` counts the calls that raised.

    Handlers that failed on an object are notified of it again by ``retry``, and of its next change as one from the
    state that they knew, so that none of them stays out of date.
    """

    def __init__(self, kind_name: str) -> None:
        self._kind_name = kind_name
        self._registrations: list[Registration[T]] = []
        self._on_add: list[tuple[Registration[T], AddHandler[T]]] = []
        self._on_update: list[tuple[Registration[T], UpdateHandler[T]]] = []
        self._on_delete: list[tuple[Registration[T], DeleteHandler[T]]] = []
        self._missed: dict[tuple[Registration[T], str], _Missed[T]] = {}
        self.failed = asyncio.Event()
        """Set while there is a notification to repeat."""
        self.errors = 0

    def add(self, registration: Registration[T]) -> None:
        self._registrations.append(registration)
        self._rebuild()

    def added(self, key: str, obj: T, initial: bool) -> None:
        for registration, handler in self._on_add:
            try:
                handler(obj, initial)
            except Exception:
                self._failed(registration, key, None, obj, initial=initial)
            else:
                if self._missed:
                    self._missed.pop((registration, key), None)

    def updated(self, key: str, old: T, new: T) -> None:
        if self._missed:
            self._updated_after_failure(key, old, new)
            return
        for registration, handler in self._on_update:
            try:
                handler(old, new)
            except Exception:
                self._failed(registration, key, old, new)

    def deleted(self, key: str, obj: T) -> None:
        for registration, handler in self._on_delete:
            try:
                handler(obj)
            except Exception:
                self._failed(registration, key, obj, obj)
            else:
                if self._missed:
                    self._missed.pop((registration, key), None)

    def added_before(self, registration: Registration[T], key: str, obj: T) -> None:
        """Notify of an object that was there before the handlers were registered."""
        if registration.on_add is not None:
            try:
                registration.on_add(obj, True)
            except Exception:
                self._failed(registration, key, None, obj, initial=True)

    def malformed(self, key: str, broken: Malformed) -> None:
        for registration in tuple(self._registrations):
            self.notify_malformed(registration, key, broken)

    def readable(self, key: str, broken: Malformed) -> None:
        """The object, which could not be decoded, can be by now, or is gone."""
        for registration in tuple(self._registrations):
            self._notify_of_malformed(registration, registration.on_readable, key, broken)

    def notify_malformed(self, registration: Registration[T], key: str, broken: Malformed) -> None:
        """Notify one handler of an object that cannot be decoded."""
        self._notify_of_malformed(registration, registration.on_malformed, key, broken)

    def _notify_of_malformed(
        self, registration: Registration[T], handler: MalformedHandler | None, key: str, broken: Malformed
    ) -> None:
        if handler is not None:
            try:
                handler(broken)
            except Exception:
                self.errors += 1
                logger.exception("handler %s failed on %s %s", registration.name, self._kind_name, key)

    def retry(self, now: Callable[[str], T | None]) -> None:
        """Repeat failed notifications, with the object as it is ``now`` by key; each a limited number of times."""
        for pair, missed in list(self._missed.items()):
            if self._missed.get(pair) is missed:
                registration, key = pair
                missed.tries += 1
                self._notify_again(registration, key, missed, now(key))
        if not self._missed:
            self.failed.clear()

    def _updated_after_failure(self, key: str, old: T, new: T) -> None:
        for registration in tuple(self._registrations):
            missed = self._missed.get((registration, key))
            if missed is not None:
                missed.last = new
                self._notify_again(registration, key, missed, new)
            elif registration.on_update is not None:
                try:
                    registration.on_update(old, new)
                except Exception:
                    self._failed(registration, key, old, new)

    def _notify_again(self, registration: Registration[T], key: str, missed: _Missed[T], obj: T | None) -> None:
        try:
            if obj is None:
                if registration.on_delete is not None:
                    registration.on_delete(missed.last)
            elif missed.seen is None:
                if registration.on_add is not None:
                    registration.on_add(obj, missed.initial)
            elif registration.on_update is not None:
                registration.on_update(missed.seen, obj)
        except Exception:
            self.errors += 1
            if missed.tries < TRIES:
                return
            logger.exception(
                "handler %s failed on %s %s %d more times and is not notified again before its next change",
                *(registration.name, self._kind_name, key, missed.tries),
            )
        else:
            logger.info("handler %s has taken note of %s %s", registration.name, self._kind_name, key)
        self._missed.pop((registration, key), None)

    def _failed(
        self, registration: Registration[T], key: str, seen: T | None, last: T, *, initial: bool = False
    ) -> None:
        self.errors += 1
        known = self._missed.get((registration, key))
        self._missed[registration, key] = _Missed(seen, last, initial, known.tries if known is not None else 0)
        self.failed.set()
        if known is None:
            logger.exception("handler %s failed on %s %s", registration.name, self._kind_name, key)

    def _rebuild(self) -> None:
        # New lists: a handler may register or remove others while the old list is being walked.
        self._on_add = [(r, r.on_add) for r in self._registrations if r.on_add]
        self._on_update = [(r, r.on_update) for r in self._registrations if r.on_update]
        self._on_delete = [(r, r.on_delete) for r in self._registrations if r.on_delete]
