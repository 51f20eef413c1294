"""The pod garbage collector: it deletes pods that have no kubelet any more, and the oldest of too many that ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from koordinator.api.document import Document
from koordinator.api.kinds import NODES, PODS
from koordinator.api.pod import Pod, is_finished
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.pod_control import first_failure
from koordinator.cluster.controllers.pod_disruption import disruption_target, end_pod
from koordinator.cluster.controllers.pod_garbage.plan import Quarantine, plan_garbage
from koordinator.kube.errors import ApiStatusError

logger = logging.getLogger(__name__)

_PERIOD: Final = 20.0
_AT_ONCE: Final = 100
_EVERYTHING: Final = "all pods"


class PodGarbageController:
    """Implements ``koordinator.kube.reconciler.Controller``; its one key stands for a look at all pods."""

    name: Final = "pod-garbage-collector-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._nodes = context.informers.informer(NODES)
        self._pods = context.informers.informer(PODS)
        self._quarantine = Quarantine()
        self._reconciler = context.reconcilers.make(self.name, self._collect, lambda: [_EVERYTHING])

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    async def _collect(self, _: str) -> float:
        pods, nodes = self._pods.list(), {node.metadata.name: node for node in self._nodes.list()}
        missing = {pod.spec.node_name for pod in pods if pod.spec.node_name} - nodes.keys()
        due = self._quarantine.due(missing, self._clock.monotonic())
        gone = [name for name in due if not await self._exists(name)]
        garbage = plan_garbage(pods, nodes, gone)
        failures = await self._delete_all([*((pod, "") for pod in garbage.pods), *_orphans(garbage.orphaned)])
        if failures is not None:
            raise failures
        return _PERIOD

    async def _exists(self, name: str) -> bool:
        """Whether the server has the node, as the cache may lag behind."""
        try:
            await self._client.get(NODES, name)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            return False
        return True

    async def _delete_all(self, doomed: list[tuple[Pod, str]]) -> Exception | None:
        """Returns the first failure; the other pods are deleted nevertheless."""
        failure: Exception | None = None
        for start in range(0, len(doomed), _AT_ONCE):
            deletions = (self._delete(pod, why) for pod, why in doomed[start : start + _AT_ONCE])
            failure = failure or first_failure(await asyncio.gather(*deletions, return_exceptions=True))
        return failure

    async def _delete(self, pod: Pod, why: str) -> None:
        """A pod has to be in a final phase before it is gone: its owner would otherwise not know what became of it."""
        status: Document = {}
        if not is_finished(pod):
            status["phase"] = "Failed"
            target = disruption_target(pod, "DeletionByPodGC", why, self._clock.now()) if why else None
            if target is not None:
                status["conditions"] = [target]
        await end_pod(self._client, pod, status, grace_period_seconds=0)
        logger.info("deleted pod %s%s", pod.metadata.key, f": {why}" if why else "")


def _orphans(pods: Sequence[Pod]) -> list[tuple[Pod, str]]:
    return [(pod, "PodGC: node no longer exists") for pod in pods]
