"""The controller that mirrors the Endpoints of Services without a selector in EndpointSlices.

Somebody keeps such Endpoints by hand or by another program, and proxies read slices alone.
"""

from __future__ import annotations

from typing import Final

from koordinator.api.meta import Object
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.endpoints.managed_slices import ManagedSlices, SliceOwner
from koordinator.cluster.controllers.endpoints.mirror_plan import MAX_ADDRESSES, mirrored, plan_mirror
from koordinator.cluster.controllers.endpoints.types import ENDPOINTS, SERVICES, Endpoints
from koordinator.cluster.controllers.ownership import controller_reference
from koordinator.kube.event_series import reference_to

MANAGER: Final = "endpointslicemirroring-controller.k8s.io"
SKIP: Final = "endpointslice.kubernetes.io/skip-mirror"
_LEADER: Final = "control-plane.alpha.kubernetes.io/leader"
_NOT_MIRRORED: Final = (
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubectl.kubernetes.io/last-applied-configuration",
)
_TOO_MANY: Final = "TooManyAddressesToMirror"
_WORKERS: Final = 5


class EndpointSliceMirroringController:
    """Implements ``koordinator.kube.reconciler.Controller``; its keys are ``namespace/name`` of Endpoints."""

    name: Final = "endpointslice-mirroring-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._recorder = context.events.recorder(self.name)
        self._services = context.informers.informer(SERVICES)
        self._endpoints = context.informers.informer(ENDPOINTS)
        self._slices = ManagedSlices(context, self.name, MANAGER)
        self._reconciler = context.reconcilers.make(self.name, self._reconcile, self._every, workers=_WORKERS)
        for informer in (self._services, self._endpoints):
            informer.add_handlers(
                name=self.name,
                on_add=lambda each, _: self._add(each),
                on_update=lambda _, each: self._add(each),
                on_delete=self._add,
            )
        self._slices.follow(self._reconciler.add)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _every(self) -> list[str]:
        return list({*(each.metadata.key for each in self._endpoints.list()), *self._slices.owners()})

    def _add(self, found: Object) -> None:
        self._reconciler.add(found.metadata.key)

    async def _reconcile(self, key: str) -> float | None:
        endpoints = self._endpoints.get(key)
        if endpoints is None or not self._is_mirrored(endpoints):
            return await self._slices.clear(key)
        return await self._mirror(endpoints)

    def _is_mirrored(self, endpoints: Endpoints) -> bool:
        """Of a Service that no controller lists the pods of, unless the object says that it is for something else."""
        metadata, service = endpoints.metadata, self._services.get(endpoints.metadata.key)
        if metadata.labels.get(SKIP) == "true" or _LEADER in metadata.annotations:
            return False
        return service is not None and not service.spec.selector

    async def _mirror(self, endpoints: Endpoints) -> float | None:
        metadata = endpoints.metadata
        wanted, skipped = mirrored(endpoints)
        plan = plan_mirror(wanted, self._slices.existing(metadata.key))
        if metadata.deletion_timestamp is not None:
            plan.create.clear()
        annotations = {key: value for key, value in metadata.annotations.items() if key not in _NOT_MIRRORED}
        owner = SliceOwner(metadata, controller_reference(ENDPOINTS, endpoints), metadata.labels, annotations)
        again = await self._slices.write(owner, plan)
        if again is None and skipped and (plan.create or plan.update):
            text = f"A max of {MAX_ADDRESSES} addresses can be mirrored to EndpointSlices per Endpoints subset. "
            text += f"{skipped} addresses were skipped"
            self._recorder.event(reference_to(ENDPOINTS, endpoints), "Warning", _TOO_MANY, _TOO_MANY, text)
        return again
