"""The controller that mirrors the Endpoints of Services without a selector in EndpointSlices.

Somebody keeps such Endpoints by hand or by another program, and proxies read slices alone.
"""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.meta import Object
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.endpoints.mirror_plan import MAX_ADDRESSES, mirrored, plan_mirror
from koordinator.cluster.controllers.endpoints.slice_controller import MANAGED_BY, SERVICE_NAME, slice_body
from koordinator.cluster.controllers.endpoints.slice_plan import SliceContent
from koordinator.cluster.controllers.endpoints.types import (
    ENDPOINT_SLICES,
    ENDPOINTS,
    SERVICES,
    Endpoints,
    EndpointSlice,
)
from koordinator.cluster.controllers.ownership import controller_reference
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import reference_to
from koordinator.kube.interface import PatchType

MANAGER: Final = "endpointslicemirroring-controller.k8s.io"
SKIP: Final = "endpointslice.kubernetes.io/skip-mirror"
_LEADER: Final = "control-plane.alpha.kubernetes.io/leader"
_NOT_MIRRORED: Final = (
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubectl.kubernetes.io/last-applied-configuration",
)
_OF_ENDPOINTS: Final = "endpoints"
_TOO_MANY: Final = "TooManyAddressesToMirror"
_WORKERS: Final = 5
_RECHECK_SECONDS: Final = 5.0


class EndpointSliceMirroringController:
    """Implements ``koordinator.kube.reconciler.Controller``; its keys are ``namespace/name`` of Endpoints."""

    name: Final = "endpointslice-mirroring-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._recorder = context.events.recorder(self.name)
        self._services = context.informers.informer(SERVICES)
        self._endpoints = context.informers.informer(ENDPOINTS)
        self._slices = context.informers.informer(ENDPOINT_SLICES, indexes={_OF_ENDPOINTS: _endpoints_of})
        self._reconciler = context.reconcilers.make(self.name, self._reconcile, self._every, workers=_WORKERS)
        for informer in (self._services, self._endpoints):
            informer.add_handlers(
                name=self.name,
                on_add=lambda each, _: self._add(each),
                on_update=lambda _, each: self._add(each),
                on_delete=self._add,
            )
        self._slices.add_handlers(
            name=self.name,
            on_add=lambda each, _: self._changed(each),
            on_update=lambda _, each: self._changed(each),
            on_delete=self._changed,
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _every(self) -> list[str]:
        left = (key for each in self._slices.list() for key in _endpoints_of(each))
        return list({*(each.metadata.key for each in self._endpoints.list()), *left})

    def _add(self, found: Object) -> None:
        self._reconciler.add(found.metadata.key)

    def _changed(self, found: EndpointSlice) -> None:
        for key in _endpoints_of(found):
            self._reconciler.add(key)

    async def _reconcile(self, key: str) -> float | None:
        endpoints, existing = self._endpoints.get(key), list(self._slices.by_index(_OF_ENDPOINTS, key))
        try:
            if endpoints is None or not self._is_mirrored(endpoints):
                for each in existing:
                    await self._delete(each)
            else:
                await self._mirror(endpoints, [each for each in existing if each.metadata.deletion_timestamp is None])
        except ApiStatusError as error:
            if not (error.is_conflict or error.is_not_found):
                raise
            # The slice has changed or is gone: its event is on the way.
            return _RECHECK_SECONDS
        return None

    def _is_mirrored(self, endpoints: Endpoints) -> bool:
        """Of a Service that no controller lists the pods of, unless the object says that it is for something else."""
        metadata, service = endpoints.metadata, self._services.get(endpoints.metadata.key)
        if metadata.labels.get(SKIP) == "true" or _LEADER in metadata.annotations:
            return False
        return service is not None and not service.spec.selector

    async def _mirror(self, endpoints: Endpoints, existing: list[EndpointSlice]) -> None:
        wanted, skipped = mirrored(endpoints)
        plan = plan_mirror(wanted, existing)
        written = {each.metadata.name for each, _ in plan.update} | {each.metadata.name for each in plan.delete}
        for each, content in plan.update:
            await self._write(endpoints, each, slice_body(content))
        for each in existing:
            if each.metadata.name not in written and not _is_marked(endpoints, each):
                await self._write(endpoints, each, {})
        if endpoints.metadata.deletion_timestamp is None:
            for content in plan.create:
                await self._create(endpoints, content)
        for each in plan.delete:
            await self._delete(each)
        if skipped and (plan.create or plan.update):
            text = f"A max of {MAX_ADDRESSES} addresses can be mirrored to EndpointSlices per Endpoints subset. "
            text += f"{skipped} addresses were skipped"
            self._recorder.event(reference_to(ENDPOINTS, endpoints), "Warning", _TOO_MANY, _TOO_MANY, text)

    async def _create(self, endpoints: Endpoints, content: SliceContent) -> None:
        metadata = endpoints.metadata
        head = {"generateName": f"{metadata.name}-", **_marks(endpoints)}
        body = {"metadata": head, "addressType": content.address_type, **slice_body(content)}
        await self._client.create(ENDPOINT_SLICES, body, metadata.namespace)

    async def _write(self, endpoints: Endpoints, found: EndpointSlice, body: Document) -> None:
        """Write a slice unless someone else has; labels and annotations that it should not have go."""
        metadata, marks = found.metadata, _marks(endpoints)
        for name in ("labels", "annotations"):
            marks[name] = dict.fromkeys(getattr(metadata, name)) | marks[name]
        patch = {"metadata": {"resourceVersion": metadata.resource_version, **marks}, **body}
        await self._client.patch(ENDPOINT_SLICES, metadata.name, patch, PatchType.MERGE, metadata.namespace)

    async def _delete(self, found: EndpointSlice) -> None:
        metadata = found.metadata
        await self._client.delete(ENDPOINT_SLICES, metadata.name, metadata.namespace, uid=metadata.uid)


def _marks(endpoints: Endpoints) -> Document:
    """The metadata that makes a slice one of these Endpoints."""
    metadata = endpoints.metadata
    return {
        "labels": {**metadata.labels, SERVICE_NAME: metadata.name, MANAGED_BY: MANAGER},
        "annotations": {key: value for key, value in metadata.annotations.items() if key not in _NOT_MIRRORED},
        "ownerReferences": [controller_reference(ENDPOINTS, endpoints)],
    }


def _is_marked(endpoints: Endpoints, found: EndpointSlice) -> bool:
    marks, metadata = _marks(endpoints), found.metadata
    is_owned = any(owner.uid == endpoints.metadata.uid for owner in metadata.owner_references)
    return is_owned and metadata.labels == marks["labels"] and metadata.annotations == marks["annotations"]


def _endpoints_of(found: EndpointSlice) -> tuple[str, ...]:
    """The key of the Endpoints that a slice mirrors; none for slices of others."""
    labels, namespace = found.metadata.labels, found.metadata.namespace
    name = labels.get(SERVICE_NAME) if labels.get(MANAGED_BY) == MANAGER else None
    return (f"{namespace}/{name}",) if name else ()
