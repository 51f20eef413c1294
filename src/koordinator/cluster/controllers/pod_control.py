"""Creates, deletes, adopts and releases the pods of workloads, with the events that Kubernetes records of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from koordinator.api.document import Document, copied
from koordinator.api.kinds import PODS, Kind
from koordinator.api.meta import Object
from koordinator.api.pod import Pod
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.controllers.adoption import Adoption
from koordinator.cluster.controllers.ownership import Claims, controller_reference
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import reference_to
from koordinator.kube.events import EventRecorder
from koordinator.kube.interface import Client

O = TypeVar("O", bound=Object)  # noqa: E741

BURST: Final = 500
"""So many pods of one owner are created or deleted in one pass."""
_TERMINATING: Final = "NamespaceTerminating"


class PodControl(Generic[O]):
    """For owners of one kind."""

    def __init__(
        self,
        client: Client,
        kind: Kind[O],
        recorder: EventRecorder,
        *,
        finalizers: Sequence[str] = (),
    ) -> None:
        """``finalizers`` are given to pods that are adopted."""
        self._client = client
        self._kind = kind
        self._recorder = recorder
        self._adoption = Adoption(client, kind, PODS, finalizers=finalizers)

    async def create(self, owner: O, body: Document) -> Pod:
        """Create ``body``, such as ``pod_of`` makes it. Raises KubeError; the event is recorded then, too."""
        metadata = owner.metadata
        try:
            pod = await self._client.create(PODS, body, metadata.namespace)
        except KoordinatorError as error:
            if not is_namespace_terminating(error):
                self._warn(owner, "FailedCreate", f"Error creating: {_text(error)}")
            raise
        self._record(owner, "SuccessfulCreate", "Create", f"Created pod: {pod.metadata.name}", pod)
        return pod

    async def delete(self, owner: O, pod: Pod) -> None:
        """Delete this very pod; one that is gone already is no error. Raises KubeError."""
        metadata = pod.metadata
        try:
            await self._client.delete(PODS, metadata.name, metadata.namespace, uid=metadata.uid)
        except ApiStatusError as error:
            # A conflict is about the UID: there is another pod of that name.
            if not (error.is_not_found or error.is_conflict):
                self._warn(owner, "FailedDelete", f"Error deleting: {_text(error)}")
                raise
            return
        self._record(owner, "SuccessfulDelete", "Delete", f"Deleted pod: {metadata.name}", pod)

    async def claim(self, owner: O, claims: Claims[Pod]) -> list[Pod]:
        """Adopt and release pods; return those that the owner has then. Raises KubeError."""
        return await self._adoption.claim(owner, claims)

    def _record(self, owner: O, reason: str, action: str, note: str, pod: Pod) -> None:
        regarding, related = reference_to(self._kind, owner), reference_to(PODS, pod)
        self._recorder.event(regarding, "Normal", reason, action, note, related=related)

    def _warn(self, owner: O, reason: str, note: str) -> None:
        self._recorder.event(reference_to(self._kind, owner), "Warning", reason, reason, note)


def pod_of(kind: Kind[Any], owner: Object, template: Document, *, name: str = "") -> Document:
    """A pod made of ``template``, a PodTemplateSpec, that ``owner`` controls; without ``name``, the server chooses a
    name that begins with that of the owner. The real controllers request both."""
    given = template.get("metadata") or {}
    metadata = {field: copied(given[field]) for field in ("labels", "annotations", "finalizers") if given.get(field)}
    metadata["ownerReferences"] = [controller_reference(kind, owner)]
    metadata["generateName"] = f"{owner.metadata.name}-"
    if name:
        metadata["name"] = name
    return {"metadata": metadata, "spec": copied(template.get("spec") or {})}


async def slow_start(count: int, call: Callable[[int], Awaitable[object]]) -> tuple[int, Exception | None]:
    """Make ``count`` calls in batches of 1, 2, 4 and so on, and no further batch after one with a failure: what makes
    one create fail, such as a quota, makes all fail.

    Returns how many succeeded, and the first failure. ``call`` gets the number of the call.
    """
    succeeded, batch, start = 0, 1, 0
    while start < count:
        batch = min(batch, count - start)
        results = await asyncio.gather(*(call(start + index) for index in range(batch)), return_exceptions=True)
        failure = first_failure(results)
        succeeded += sum(not isinstance(result, BaseException) for result in results)
        if failure is not None:
            return succeeded, failure
        start += batch
        batch *= 2
    return succeeded, None


def first_failure(results: Sequence[object]) -> Exception | None:
    """Of ``asyncio.gather`` with ``return_exceptions``."""
    return next((result for result in results if isinstance(result, Exception)), None)


def is_namespace_terminating(error: Exception) -> bool:
    """Whether a create failed because its namespace is being deleted, which no retry helps."""
    return isinstance(error, ApiStatusError) and any(cause.reason == _TERMINATING for cause in error.details.causes)


def _text(error: KoordinatorError) -> str:
    return error.message if isinstance(error, ApiStatusError) else str(error)
