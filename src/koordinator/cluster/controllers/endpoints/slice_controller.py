"""The controller of EndpointSlices: it lists the pods of each Service with a selector."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.codec import to_document
from koordinator.api.document import Document
from koordinator.api.kinds import NODES
from koordinator.api.meta import controller_of
from koordinator.api.node import Node
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.endpoints.pod_endpoints import service_labels
from koordinator.cluster.controllers.endpoints.service_pods import ServicePods
from koordinator.cluster.controllers.endpoints.slice_plan import SliceContent, plan_slices
from koordinator.cluster.controllers.endpoints.types import ENDPOINT_SLICES, SERVICES, EndpointSlice, Service
from koordinator.cluster.controllers.ownership import controller_reference
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType

SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
MANAGER: Final = "endpointslice-controller.k8s.io"
_ZONE: Final = "topology.kubernetes.io/zone"
_OF_SERVICE: Final = "service"
_WORKERS: Final = 5
_RECHECK_SECONDS: Final = 5.0
"""When an object is looked at again that has changed since the cache was read, if no event says so before."""


class EndpointSliceController:
    """Implements ``koordinator.kube.reconciler.Controller``; its keys are ``namespace/name`` of Services."""

    name: Final = "endpointslice-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._found = ServicePods(context, self.name)
        self._nodes = context.informers.informer(NODES)
        self._slices = context.informers.informer(ENDPOINT_SLICES, indexes={_OF_SERVICE: _service_of})
        self._reconciler = context.reconcilers.make(
            self.name,
            self._reconcile,
            lambda: [each.metadata.key for each in self._found.services.list()],
            workers=_WORKERS,
        )
        self._found.follow(self._reconciler.add)
        self._slices.add_handlers(
            name=self.name,
            on_add=lambda each, _: self._changed(each),
            on_update=lambda _, each: self._changed(each),
            on_delete=self._changed,
        )
        self._nodes.add_handlers(name=self.name, on_update=self._moved)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _changed(self, found: EndpointSlice) -> None:
        for key in _service_of(found):
            self._reconciler.add(key)

    def _moved(self, old: Node, new: Node) -> None:
        if old.metadata.labels.get(_ZONE) != new.metadata.labels.get(_ZONE):
            self._reconciler.add_all()

    async def _reconcile(self, key: str) -> float | None:
        service = self._found.services.get(key)
        if service is None or not service.lists_pods or service.metadata.deletion_timestamp is not None:
            return None
        existing = [
            each for each in self._slices.by_index(_OF_SERVICE, key) if each.metadata.deletion_timestamp is None
        ]
        plan = plan_slices(service, self._found.endpoints(service), existing, self._zones())
        written = {each.metadata.name for each, _ in plan.update} | {each.metadata.name for each in plan.delete}
        try:
            for each, content in plan.update:
                await self._write(service, each, slice_body(content))
            for each in existing:
                if each.metadata.name not in written and not _is_marked(service, each):
                    await self._write(service, each, {})
            for content in plan.create:
                await self._create(service, content)
            for each in plan.delete:
                await self._delete(each)
        except ApiStatusError as error:
            if not (error.is_conflict or error.is_not_found):
                raise
            # The slice or the Service has changed or is gone: its event is on the way.
            return _RECHECK_SECONDS
        return None

    def _zones(self) -> dict[str, str]:
        nodes = ((node.metadata.name, node.metadata.labels.get(_ZONE)) for node in self._nodes.list())
        return {name: zone for name, zone in nodes if zone}

    async def _create(self, service: Service, content: SliceContent) -> None:
        metadata = service.metadata
        head = {"generateName": f"{metadata.name}-", **_marks(service)}
        body = {"metadata": head, "addressType": content.address_type, **slice_body(content)}
        await self._client.create(ENDPOINT_SLICES, body, metadata.namespace)

    async def _write(self, service: Service, found: EndpointSlice, body: Document) -> None:
        """Write a slice unless someone else has; labels that it should not have go."""
        metadata = found.metadata
        marks = _marks(service)
        marks["labels"] = dict.fromkeys(metadata.labels) | marks["labels"]
        patch = {"metadata": {"resourceVersion": metadata.resource_version, **marks}, **body}
        await self._client.patch(ENDPOINT_SLICES, metadata.name, patch, PatchType.MERGE, metadata.namespace)

    async def _delete(self, found: EndpointSlice) -> None:
        metadata = found.metadata
        await self._client.delete(ENDPOINT_SLICES, metadata.name, metadata.namespace, uid=metadata.uid)


def slice_body(content: SliceContent) -> Document:
    """What a slice with this content says of it."""
    ports: list[Document] | None = None
    if content.ports is not None:
        # Here an empty name is one.
        ports = [{"name": port.name, "protocol": port.protocol, **to_document(port)} for port in content.ports]
    return {"endpoints": [to_document(each) for each in content.endpoints] or None, "ports": ports}


def _marks(service: Service) -> dict[str, Any]:
    """The metadata that makes a slice one of this Service."""
    own = {SERVICE_NAME: service.metadata.name, MANAGED_BY: MANAGER}
    return {
        "labels": service_labels(service, own),
        "ownerReferences": [controller_reference(SERVICES, service)],
    }


def _is_marked(service: Service, found: EndpointSlice) -> bool:
    owner = controller_of(found.metadata)
    is_owned = owner is not None and owner.uid == service.metadata.uid
    return is_owned and found.metadata.labels == _marks(service)["labels"]


def _service_of(found: EndpointSlice) -> tuple[str, ...]:
    """The key of the Service whose slice it is, and this controller's; none for slices of others."""
    labels, namespace = found.metadata.labels, found.metadata.namespace
    name = labels.get(SERVICE_NAME) if labels.get(MANAGED_BY) == MANAGER else None
    return (f"{namespace}/{name}",) if name else ()
