"""The controller of Endpoints: one object for each Service with a selector, of the same name."""

from __future__ import annotations

from typing import Final

from koordinator.api.codec import to_document
from koordinator.api.document import Document
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.endpoints.pod_endpoints import service_labels
from koordinator.cluster.controllers.endpoints.service_pods import ServicePods
from koordinator.cluster.controllers.endpoints.subsets import OVER_CAPACITY, endpoint_subsets
from koordinator.cluster.controllers.endpoints.types import ENDPOINTS, Endpoints, Service
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType

MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
MANAGER: Final = "endpoint-controller"
_WORKERS: Final = 5
_RECHECK_SECONDS: Final = 5.0


class EndpointsController:
    """Implements ``koordinator.kube.reconciler.Controller``; its keys are ``namespace/name``."""

    name: Final = "endpoints-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._found = ServicePods(context, self.name)
        self._endpoints = context.informers.informer(ENDPOINTS)
        self._reconciler = context.reconcilers.make(self.name, self._reconcile, self._every, workers=_WORKERS)
        add = self._reconciler.add
        self._found.follow(add, lambda service: add(service.metadata.key))
        self._endpoints.add_handlers(
            name=self.name,
            on_add=lambda each, _: add(each.metadata.key),
            on_update=lambda _, each: add(each.metadata.key),
            on_delete=lambda each: add(each.metadata.key),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _every(self) -> list[str]:
        """With what Services that were deleted meanwhile have left."""
        left = [each.metadata.key for each in self._endpoints.list() if MANAGED_BY in each.metadata.labels]
        return [*(each.metadata.key for each in self._found.services.list()), *left]

    async def _reconcile(self, key: str) -> float | None:
        service, found = self._found.services.get(key), self._endpoints.get(key)
        try:
            if service is None:
                await self._remove(found)
            elif service.lists_pods:
                await self._keep(service, found)
        except ApiStatusError as error:
            if not (error.is_conflict or error.is_not_found or error.is_already_exists):
                raise
            # It has changed or is gone: its event is on the way.
            return _RECHECK_SECONDS
        return None

    async def _remove(self, found: Endpoints | None) -> None:
        """Of a Service that is gone: what this controller has made of it."""
        if found is None or found.metadata.labels.get(MANAGED_BY) != MANAGER:
            return
        metadata = found.metadata
        await self._client.delete(ENDPOINTS, metadata.name, metadata.namespace, uid=metadata.uid)

    async def _keep(self, service: Service, found: Endpoints | None) -> None:
        metadata = service.metadata
        subsets, is_cut = endpoint_subsets(service, self._found.endpoints(service))
        labels = {**service_labels(service), MANAGED_BY: MANAGER}
        annotation = "truncated" if is_cut else None
        body: Document = {"subsets": [to_document(each) for each in subsets] or None}
        if found is None:
            head = {"name": metadata.name, "labels": labels}
            given = {"annotations": {OVER_CAPACITY: annotation}} if annotation else {}
            await self._client.create(ENDPOINTS, {"metadata": head | given, **body}, metadata.namespace)
            return
        had = found.metadata
        is_same = had.labels == labels and had.annotations.get(OVER_CAPACITY) == annotation
        if is_same and (found.subsets or []) == subsets:
            return
        changed: Document = {
            "resourceVersion": had.resource_version,
            "labels": dict.fromkeys(had.labels) | labels,
            "annotations": {OVER_CAPACITY: annotation},
        }
        await self._client.patch(ENDPOINTS, had.name, {"metadata": changed, **body}, PatchType.MERGE, had.namespace)
