"""A controller that decides by a pure function, and carries the plan out: for objects of one kind, one at a time.

In a dry run the same decisions are made, one after the other, on the object as each of them would leave it; what they
would do to anything else is said, and not done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar

from msgspec.structs import replace

from koordinator.api.codec import convert, to_document
from koordinator.api.document import Document
from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.api.modification import Modification
from koordinator.descheduler.framework import Handle
from koordinator.descheduler.migration.job_status import status_patch
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import reference_to
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.reconciler import Reconcilers
from koordinator.model.patch.strategic import apply_strategic_patch

O = TypeVar("O", bound=Object)  # noqa: E741
T = TypeVar("T")

_DEADLINE: Final = 120.0
_ROUNDS: Final = 32
"""More decisions than this in a row do not come out of one state of the cluster."""


@dataclass(frozen=True, slots=True)
class PlannedEvent:
    """An event on the object."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str
    modification: Modification | None = None
    """What the audit keeps of it."""


@dataclass(frozen=True, slots=True)
class PatchObject:
    """Merge this into the object itself, but for its status."""

    patch: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CreateObject:
    """Create another object; ``about`` goes on with the sentence."""

    kind: Kind[Any]
    document: Document
    about: str = ""

    def __str__(self) -> str:
        return f"create {self.kind.name} {self.document['metadata']['name']}{self.about}"


@dataclass(frozen=True, slots=True)
class PatchOther:
    """Merge this into another object, but for its status; ``what`` says so in a sentence without a subject."""

    what: str
    kind: Kind[Any]
    name: str
    patch: Document

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete this very object."""

    kind: Kind[Any]
    obj: Object

    def __str__(self) -> str:
        return f"delete {self.kind.name} {self.obj.metadata.name}"


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """Actions in this order, each of which may be repeated; then the status, if it is another one; then the events.

    Each action but PatchObject is a sentence without a subject as a text, such as "cordon its node"."""

    status: Any
    actions: tuple[Any, ...] = ()
    events: tuple[PlannedEvent, ...] = ()


class PlanController(ABC, Generic[O]):
    """Works while ``run`` runs."""

    def __init__(self, name: str, kind: Kind[O], handle: Handle, reconcilers: Reconcilers) -> None:
        self._kind = kind
        self._client, self._recorder, self._clock = handle.client, handle.recorder, handle.clock
        self._objects = handle.informers.informer(kind, absent_is_empty=True)
        self._reconciler = reconcilers.make(name, self.reconcile, self._names, deadline=_DEADLINE)

    async def run(self) -> None:
        """Work until cancelled; may be called again afterwards."""
        await self._reconciler.run()

    async def reconcile(self, name: str) -> float | None:
        """Bring an object one step further. Returns after how many seconds it has to be looked at again."""
        found = self._objects.get(name)
        if found is None:
            return None
        await self._prepare(found)
        obj, plan = self._decide(found)
        for action in plan.actions:
            await self._take(action, obj)
        patch = status_patch(_status(obj), plan.status)
        if patch:
            body = for_version(obj, {"status": patch})
            await self._client.patch(self._kind, obj.metadata.name, body, PatchType.MERGE, subresource="status")
            self._on_status(obj, plan)
        for event in plan.events:
            self._record(obj, event)
        return self._due(obj, plan)

    async def intentions(self) -> list[str]:
        """What would be done about each object, with nothing done about it."""
        return [
            f"{self._subject(obj)}: {each}" for obj in self._objects.list() for each in await self._intentions_for(obj)
        ]

    async def _intentions_for(self, obj: O) -> list[str]:
        await self._prepare(obj)

        async def next_plan(obj: O) -> tuple[O, list[str]]:
            _, plan = self._decide(obj)
            for action in plan.actions:
                if isinstance(action, PatchObject):
                    obj = merged(obj, action.patch)
            actions = [str(action) for action in plan.actions if not isinstance(action, PatchObject)]
            return replace(obj, status=plan.status), actions

        return await intentions_for(obj, next_plan)

    async def _prepare(self, found: O) -> None:
        """Read what the decision needs and no informer has."""

    @abstractmethod
    def _decide(self, found: O) -> tuple[O, ObjectPlan]:
        """The object as the decision sees it, and the plan."""

    async def _do(self, action: Any, obj: O) -> None:
        """Carry an action out that only this controller has."""
        raise NotImplementedError(action)

    @abstractmethod
    def _due(self, obj: O, plan: ObjectPlan) -> float | None:
        """After how many seconds the object has to be looked at again, if nothing changes."""

    def _on_status(self, obj: O, plan: ObjectPlan) -> None:
        """The status has been written."""

    def _subject(self, obj: O) -> str:
        return f"{self._kind.name} {obj.metadata.name}"

    def _names(self) -> Iterable[str]:
        return [obj.metadata.name for obj in self._objects.list()]

    def _record(self, obj: O, event: PlannedEvent) -> None:
        about = reference_to(self._kind, obj)
        self._recorder.event(about, event.type, event.reason, "Drain", event.note, modification=event.modification)

    async def _take(self, action: Any, obj: O) -> None:
        try:
            match action:
                case PatchObject(patch):
                    body = for_version(obj, patch)
                    await self._client.patch(self._kind, obj.metadata.name, body, PatchType.MERGE)
                case CreateObject(kind, document):
                    await self._client.create(kind, document)
                case PatchOther(_, kind, name, patch):
                    await self._client.patch(kind, name, patch, PatchType.MERGE)
                case DeleteObject(kind, other):
                    await self._client.delete(kind, other.metadata.name, uid=other.metadata.uid)
                case _:
                    await self._do(action, obj)
        except ApiStatusError as error:
            # It was done before, by a look at the object that did not come to its end; or what it is about is gone.
            if not (error.is_already_exists or error.is_not_found):
                raise


async def intentions_for(obj: O, decide: Callable[[O], Awaitable[tuple[O, Sequence[str]]]]) -> list[str]:
    """The actions that follow from the cluster as it is, each once and in order, as sentences without a subject.

    ``decide`` returns the object as the next plan would leave it, and the plan's actions on anything else. They are
    not carried out, so that the decisions come to rest where the first of them would have to show."""
    found: dict[str, None] = {}
    for _ in range(_ROUNDS):
        changed, actions = await decide(obj)
        found |= dict.fromkeys(actions)
        if changed == obj:
            break
        obj = changed
    return list(found)


async def if_there(request: Awaitable[T]) -> T | None:
    """What the API server responds; None where it has no such object."""
    try:
        return await request
    except ApiStatusError as error:
        if not error.is_not_found:
            raise
        return None


async def delete_if_there(client: Client, kind: Kind[Any], name: str, uid: str) -> None:
    """Delete this very object; that it is gone, or another one by now, is as good."""
    try:
        await client.delete(kind, name, uid=uid)
    except ApiStatusError as error:
        if not error.is_not_found and not error.is_conflict:
            raise


def merged(obj: O, patch: Document) -> O:
    """The object with a merge patch in it that replaces no list by a part of it."""
    return convert(apply_strategic_patch(to_document(obj), patch, None), type(obj))


def for_version(obj: Object, patch: Mapping[str, Any]) -> dict[str, Any]:
    """The patch, for this version of the object only."""
    version = {"uid": obj.metadata.uid, "resourceVersion": obj.metadata.resource_version}
    return {**patch, "metadata": {**patch.get("metadata", {}), **version}}


def age_order(obj: Object) -> tuple[float, str]:
    """A sort key: the oldest first."""
    created: datetime | None = obj.metadata.creation_timestamp
    return created.timestamp() if created is not None else 0.0, obj.metadata.name


def _status(obj: Any) -> Any:
    return obj.status
