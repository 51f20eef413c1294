"""Which children an owner has: by ownerReferences and selector, as every workload controller of Kubernetes decides it.

An object is a child when its controllerRef names the owner and the owner's selector matches it. One that matches and
has no controller is adopted; one that the owner controls and that no longer matches is released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from koordinator.api.document import Document
from koordinator.api.kinds import Kind
from koordinator.api.meta import LabelSelector, Object, controller_of
from koordinator.cluster.controllers.selector_index import SelectorIndex
from koordinator.kube.informer import Informer
from koordinator.model.label_selector import NOTHING, CompiledSelector, SelectorError, compile_selector

C = TypeVar("C", bound=Object)
O = TypeVar("O", bound=Object)  # noqa: E741

CONTROLLER_INDEX: Final = "controller"


def usable_selector(selector: LabelSelector | None) -> CompiledSelector:
    """The selector of an owner; NOTHING for one that is not there or cannot be read, which costs the other owners
    nothing. API servers let none in, but they may have got it from an earlier version of themselves."""
    try:
        return compile_selector(selector)
    except SelectorError:
        return NOTHING


def by_controller(obj: Object) -> tuple[str, ...]:
    """Index function for ``CONTROLLER_INDEX``: the UID of the controller, or the namespace of an object without one."""
    owner = controller_of(obj.metadata)
    return (owner.uid,) if owner is not None else (orphans_of(obj.metadata.namespace),)


def orphans_of(namespace: str) -> str:
    """The value of the index under which the objects of ``namespace`` without a controller are."""
    return f"namespace {namespace}"


def candidates(children: Informer[C], owner: Object) -> list[C]:
    """The objects that ``owner`` controls, and those of its namespace that nothing controls."""
    metadata = owner.metadata
    controlled = children.by_index(CONTROLLER_INDEX, metadata.uid)
    orphans = children.by_index(CONTROLLER_INDEX, orphans_of(metadata.namespace))
    return [*(child for child in controlled if child.metadata.namespace == metadata.namespace), *orphans]


@dataclass(frozen=True, slots=True)
class Claims(Generic[C]):
    """What an owner does with its candidates."""

    owned: list[C]
    adopted: list[C]
    """To be given the owner as their controller; they count as owned only after that has succeeded."""
    released: list[C]
    """To lose their reference to the owner."""


def claim(owner: Object, objects: Iterable[C], selector: CompiledSelector) -> Claims[C]:
    """Decide on the candidates of ``owner``. One that is being deleted neither adopts nor releases; one whose selector
    cannot be read keeps what it has, since it would replace without end what it releases."""
    found: Claims[C] = Claims([], [], [])
    is_leaving = owner.metadata.deletion_timestamp is not None
    for child in objects:
        reference = controller_of(child.metadata)
        matches = selector.matches(child.metadata.labels)
        if reference is None:
            if matches and not is_leaving and child.metadata.deletion_timestamp is None:
                found.adopted.append(child)
        elif reference.uid != owner.metadata.uid:
            continue
        elif matches or selector is NOTHING:
            found.owned.append(child)
        elif not is_leaving:
            found.released.append(child)
    return found


def controller_reference(kind: Kind[Any], owner: Object) -> Document:
    """The ownerReference of a child that ``owner`` controls, as a document."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def adoption_patch(kind: Kind[Any], owner: Object, child: Object, finalizers: Sequence[str] = ()) -> Document:
    """A strategic merge patch that makes ``owner`` the controller of ``child``, if that is still the same object."""
    metadata: Document = {"uid": child.metadata.uid, "ownerReferences": [controller_reference(kind, owner)]}
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    return {"metadata": metadata}


def release_patch(owner: Object, child: Object) -> Document:
    """A strategic merge patch that removes the reference of ``child`` to ``owner``."""
    removed = {"$patch": "delete", "uid": owner.metadata.uid}
    return {"metadata": {"uid": child.metadata.uid, "ownerReferences": [removed]}}


class OwnerEvents(Generic[C, O]):
    """Handlers of the informers of owners and of their children: they add the key of the owner that a change concerns,
    and where nothing controls the child, of every owner that would adopt it."""

    def __init__(
        self,
        kind: Kind[O],
        owners: Informer[O],
        selector: Callable[[O], CompiledSelector],
        add: Callable[[str], None],
    ) -> None:
        """``selector`` gives the selector of an owner; ``add`` takes ``namespace/name``."""
        self._kind = kind
        self._owners = owners
        self._adopters = SelectorIndex("adopters", owners, selector)
        self._add = add

    def follow(self, children: Informer[C], name: str, forget: Callable[[O], None] | None = None) -> None:
        """Register all handlers under the name of the controller; ``forget`` is called for an owner that is gone."""
        self._owners.add_handlers(
            name=name,
            on_add=lambda owner, _: self._add(owner.metadata.key),
            on_update=lambda _, owner: self._add(owner.metadata.key),
            on_delete=forget,
        )
        children.add_handlers(name=name, on_add=self.added, on_update=self.updated, on_delete=self.deleted)

    def added(self, child: C, initial: bool) -> None:
        if controller_of(child.metadata) is None:
            self._add_adopters(child)
        else:
            self._add_owner(child)

    def updated(self, old: C, new: C) -> None:
        before, after = controller_of(old.metadata), controller_of(new.metadata)
        if before is not None and before != after:
            self._add_owner(old)
        if after is not None:
            self._add_owner(new)
        elif before is not None or old.metadata.labels != new.metadata.labels:
            self._add_adopters(new)

    def deleted(self, child: C) -> None:
        self._add_owner(child)

    def _add_owner(self, child: C) -> None:
        reference = controller_of(child.metadata)
        if reference is None or reference.kind != self._kind.name:
            return
        key = f"{child.metadata.namespace}/{reference.name}"
        owner = self._owners.get(key)
        if owner is not None and owner.metadata.uid == reference.uid:
            self._add(key)

    def _add_adopters(self, child: C) -> None:
        for owner in self._adopters.selecting(child.metadata):
            self._add(owner.metadata.key)
