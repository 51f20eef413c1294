"""DefaultBinder and DefaultPreBind: what happens to a pod of which nobody else takes care."""

from __future__ import annotations

from koordinator.scheduler.engine.binding_points import BindOutcome, BindPlugin, ClusterWriter
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.pod_info import PodInfo


class DefaultBinder(BindPlugin):
    """Binds by POST pods/NAME/binding."""

    name = "DefaultBinder"

    async def bind(self, pod: PodInfo, node_name: str, writer: ClusterWriter) -> BindOutcome:
        return BindOutcome.BY_API


class DefaultPreBind(Plugin):
    """Writes what PreBind plugins changed of the pod as one patch; none of the built plugins changes anything."""

    name = "DefaultPreBind"
