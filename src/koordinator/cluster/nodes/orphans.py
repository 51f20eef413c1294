"""Removes pods whose node no longer exists, as the pod garbage collector of kube-controller-manager does.

Without it, pods of a deleted node would wait for ever for a kubelet that confirms their end. Where that controller runs
as well, both do the same thing and the second finds nothing left to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from koordinator.api.kinds import NODES, PODS
from koordinator.api.pod import Pod, is_finished
from koordinator.base.clock import Clock
from koordinator.cluster.nodes import pod_status
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.requeue_delays import ExponentialFailureLimiter
from koordinator.kube.workqueue import WorkQueue, run_workers

logger = logging.getLogger(__name__)

QUARANTINE_SECONDS: Final = 40.0
"""How long a node has to be missing (the controller's own constant): a node may come back, or we may lag behind."""


_WORKERS: Final = 4


class Orphans:
    """Call ``missing`` for every node that pods name and that is not there."""

    def __init__(self, client: Client, pods_of: Callable[[str], Iterable[Pod]], *, clock: Clock) -> None:
        self._client = client
        self._pods_of = pods_of
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue(clock, ExponentialFailureLimiter(base=0.5, maximum=30.0))

    async def run(self) -> None:
        """Collect until cancelled."""
        await run_workers(self._queue, self._collect, workers=_WORKERS, on_error=_say_failure)

    def missing(self, node: str) -> None:
        """Look at this node's pods when the quarantine is over, if it is missing still."""
        self._queue.add_after(node, QUARANTINE_SECONDS)

    async def _collect(self, node: str) -> None:
        if await self._exists(node):
            return
        pods = [pod for pod in self._pods_of(node) if not _only_finalizers_left(pod)]
        for pod in pods:
            await self._remove(pod)
        if pods:
            logger.info("removed %d pods of node %s, which no longer exists", len(pods), node)

    async def _exists(self, node: str) -> bool:
        try:
            await self._client.get(NODES, node)
        except ApiStatusError as error:
            if error.is_not_found:
                return False
            raise
        return True

    async def _remove(self, pod: Pod) -> None:
        name, namespace, uid = pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
        try:
            if not is_finished(pod):
                patch = pod_status.orphaned(pod, self._clock.now())
                await self._client.patch(PODS, name, patch, PatchType.STRATEGIC, namespace, subresource="status")
            await self._client.delete(PODS, name, namespace, uid=uid, grace_period_seconds=0)
        except ApiStatusError as error:
            if not (error.is_not_found or error.is_conflict or error.is_invalid):
                raise


def _say_failure(node: str, error: Exception) -> None:
    unexpected = error if not isinstance(error, KubeError) else None
    logger.warning("pods of missing node %s: %s; trying again soon", node, error, exc_info=unexpected)


def _only_finalizers_left(pod: Pod) -> bool:
    metadata = pod.metadata
    return bool(metadata.deletion_timestamp and metadata.finalizers and not metadata.deletion_grace_period_seconds)
