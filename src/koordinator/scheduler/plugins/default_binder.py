"""DefaultBinder: binds a pod that no other Bind plugin handles."""

from __future__ import annotations

from koordinator.scheduler.engine.binding_points import BindOutcome, BindPlugin, ClusterWriter, CycleState
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.pod_info import PodInfo


class DefaultBinder(BindPlugin):
    """Binds by POST pods/NAME/binding."""

    name = "DefaultBinder"

    def concerns(self, pod: PodInfo) -> bool:
        return False

    async def bind(self, state: CycleState, pod: PodInfo, node: NodeReference, writer: ClusterWriter) -> BindOutcome:
        return BindOutcome.BY_API
