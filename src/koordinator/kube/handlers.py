"""The handlers of an informer: called in the order of their registration, none able to stop the others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from koordinator.api.meta import Object
from koordinator.kube.interface import Malformed

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)
T_contra = TypeVar("T_contra", bound=Object, contravariant=True)


class AddHandler(Protocol[T_contra]):
    """``initial``: the object was there before the informer was in sync (or before the handler was registered)."""

    def __call__(self, obj: T_contra, initial: bool, /) -> None: ...


UpdateHandler = Callable[[T, T], None]
"""(old, new) of one uid."""
DeleteHandler = Callable[[T], None]
"""The object as handlers saw it last."""
MalformedHandler = Callable[[Malformed], None]
"""An object that cannot be decoded, once per version. The last readable version, if any, stays in the store."""


@dataclass(frozen=True, slots=True, eq=False)
class Registration(Generic[T]):
    """One set of handlers; give it to ``remove_handlers`` to stop them."""

    name: str
    on_add: AddHandler[T] | None
    on_update: UpdateHandler[T] | None
    on_delete: DeleteHandler[T] | None
    on_malformed: MalformedHandler | None


class HandlerSet(Generic[T]):
    """All handlers of one informer. ``errors`` counts those that raised."""

    def __init__(self, kind_name: str) -> None:
        self._kind_name = kind_name
        self._registrations: list[Registration[T]] = []
        self._on_add: list[tuple[str, AddHandler[T]]] = []
        self._on_update: list[tuple[str, UpdateHandler[T]]] = []
        self._on_delete: list[tuple[str, DeleteHandler[T]]] = []
        self.errors = 0

    def add(self, registration: Registration[T]) -> None:
        self._registrations.append(registration)
        self._rebuild()

    def remove(self, registration: Registration[T]) -> None:
        """Raises ValueError when it is not registered."""
        self._registrations.remove(registration)
        self._rebuild()

    def added(self, key: str, obj: T, initial: bool) -> None:
        for name, handler in self._on_add:
            try:
                handler(obj, initial)
            except Exception:
                self._failed(name, key)

    def updated(self, key: str, old: T, new: T) -> None:
        for name, handler in self._on_update:
            try:
                handler(old, new)
            except Exception:
                self._failed(name, key)

    def deleted(self, key: str, obj: T) -> None:
        for name, handler in self._on_delete:
            self.call(name, key, handler, obj)

    def malformed(self, key: str, broken: Malformed) -> None:
        for registration in tuple(self._registrations):
            if registration.on_malformed is not None:
                self.call(registration.name, key, registration.on_malformed, broken)

    def call(self, name: str, key: str, handler: Callable[..., None], *arguments: object) -> None:
        """Call one handler; what it raises is logged with the object's key and counted."""
        try:
            handler(*arguments)
        except Exception:
            self._failed(name, key)

    def _failed(self, name: str, key: str) -> None:
        self.errors += 1
        logger.exception("handler %s failed on %s %s", name, self._kind_name, key)

    def _rebuild(self) -> None:
        # New lists: a handler may register or remove others while the old list is being walked.
        self._on_add = [(r.name, r.on_add) for r in self._registrations if r.on_add]
        self._on_update = [(r.name, r.on_update) for r in self._registrations if r.on_update]
        self._on_delete = [(r.name, r.on_delete) for r in self._registrations if r.on_delete]
