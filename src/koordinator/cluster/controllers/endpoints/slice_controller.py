"""The controller of EndpointSlices: it lists the pods of each Service with a selector."""

from __future__ import annotations

from typing import Final

from koordinator.api.kinds import NODES
from koordinator.api.node import Node
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.endpoints.managed_slices import ManagedSlices, SliceOwner
from koordinator.cluster.controllers.endpoints.pod_endpoints import service_labels
from koordinator.cluster.controllers.endpoints.service_pods import ServicePods
from koordinator.cluster.controllers.endpoints.slice_plan import plan_slices
from koordinator.cluster.controllers.endpoints.types import SERVICES
from koordinator.cluster.controllers.ownership import controller_reference

MANAGER: Final = "endpointslice-controller.k8s.io"
_ZONE: Final = "topology.kubernetes.io/zone"
_WORKERS: Final = 5


class EndpointSliceController:
    """Implements ``koordinator.kube.reconciler.Controller``; its keys are ``namespace/name`` of Services."""

    name: Final = "endpointslice-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._found = ServicePods(context, self.name)
        self._nodes = context.informers.informer(NODES)
        self._slices = ManagedSlices(context, self.name, MANAGER)
        self._reconciler = context.reconcilers.make(
            self.name,
            self._reconcile,
            lambda: [each.metadata.key for each in self._found.services.list()],
            workers=_WORKERS,
        )
        self._found.follow(self._reconciler.add)
        self._slices.follow(self._reconciler.add)
        self._nodes.add_handlers(name=self.name, on_update=self._moved)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _moved(self, old: Node, new: Node) -> None:
        if old.metadata.labels.get(_ZONE) != new.metadata.labels.get(_ZONE):
            self._reconciler.add_all()

    async def _reconcile(self, key: str) -> float | None:
        service = self._found.services.get(key)
        if service is None or not service.lists_pods or service.metadata.deletion_timestamp is not None:
            return None
        plan = plan_slices(service, self._found.endpoints(service), self._slices.existing(key), self._zones())
        labels, reference = service_labels(service), controller_reference(SERVICES, service)
        return await self._slices.write(SliceOwner(service.metadata, reference, labels), plan)

    def _zones(self) -> dict[str, str]:
        nodes = ((node.metadata.name, node.metadata.labels.get(_ZONE)) for node in self._nodes.list())
        return {name: zone for name, zone in nodes if zone}
