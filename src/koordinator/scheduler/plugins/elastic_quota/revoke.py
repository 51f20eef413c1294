"""Reclaims what quotas use beyond their runtime for too long, by evicting their pods of the lowest priority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordinator.api.elastic_quota import SYSTEM_QUOTA
from koordinator.base.errors import KoordinatorError
from koordinator.scheduler.engine.binding_points import ControllerWriter
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.elastic_quota.accounts import Accounts
from koordinator.scheduler.plugins.elastic_quota.amounts import Amounts, add, exceeding, masked
from koordinator.scheduler.plugins.elastic_quota.event_handlers import is_non_preemptible, request_of
from koordinator.scheduler.plugins.preemption import importance

PodRequest = tuple[PodInfo, Mapping[str, int]]
"""A pod and its request, of those resources that its quota counts."""


def to_revoke(used: Mapping[str, int], limit: Mapping[str, int], pods: Sequence[PodRequest]) -> list[PodInfo]:
    """The pods to evict so that no more than ``limit`` is used, as few as possible of the least important.

    ``pods``: the preemptible pods, the most important first. If evicting all of them is not enough, all of them are
    evicted, as in the original.
    """
    left: Amounts = dict(used)
    taken: list[PodRequest] = []
    for pod, request in reversed(pods):
        if not exceeding(left, limit):
            break
        add(left, request, -1)
        taken.append((pod, request))
    if exceeding(left, limit):
        return [pod for pod, _ in taken]
    revoked: list[PodInfo] = []
    for pod, request in reversed(taken):
        add(left, request)
        if exceeding(left, limit):
            add(left, request, -1)
            revoked.append(pod)
    return revoked


class RevokeController:
    """Evicts pods of quotas that have exceeded their limit for more than ``delay`` seconds; checks every ``interval``
    seconds."""

    name = "QuotaOverUsedRevokeController"

    def __init__(
        self, accounts: Accounts, view: ClusterView, writer: ControllerWriter, delay: float, interval: float
    ) -> None:
        self._accounts = accounts
        self._view = view
        self._writer = writer
        self._delay = delay
        self._interval = interval
        self._since: dict[str, float] = {}
        """Quota -> when it was last seen within its limit, or had pods evicted, in seconds of the monotonic clock."""
        self._evicting: set[str] = set()
        """The uids of pods whose eviction is under way."""

    async def run(self) -> None:
        """Check periodically until cancelled."""
        while True:
            for pod in self._due(self._writer.monotonic()):
                if pod.uid not in self._evicting:
                    self._evicting.add(pod.uid)
                    # Each by itself: one that is not answered delays no other.
                    self._writer.start(self._evict(pod), f"eviction of pod {pod.key}, whose quota uses too much")
            await self._writer.sleep(self._interval)

    def _due(self, now: float) -> list[PodInfo]:
        """The pods to evict now. The delay of their quotas starts anew."""
        found: list[PodInfo] = []
        forest = self._accounts.forest
        self._since = {name: since for name, since in self._since.items() if name in forest.nodes}
        for name, node in forest.nodes.items():
            if name == SYSTEM_QUOTA or node.detached:
                continue
            since = self._since.setdefault(name, now)
            limit = forest.limit(node)
            if not exceeding(node.total.used, limit):
                self._since[name] = now
            elif now - since > self._delay:
                self._since[name] = now
                found += to_revoke(node.total.used, limit, self._pods_of(name, node.specification.max))
        return found

    def _pods_of(self, quota: str, counted: Mapping[str, int]) -> list[PodRequest]:
        uids = {pod.uid for pod in self._accounts.pods_of(quota) if pod.is_assigned and not pod.kind.is_non_preemptible}
        placed = (pod for pods in self._view.pods_on.values() for pod in pods.values() if pod.uid in uids)
        return [
            (pod, masked(request_of(pod, self._view), counted))
            for pod in sorted(placed, key=importance)
            if not is_non_preemptible(pod.pod) and pod.pod.metadata.deletion_timestamp is None
        ]

    async def _evict(self, pod: PodInfo) -> None:
        try:
            await self._writer.evict(pod.pod.metadata)
        except KoordinatorError as error:
            self._writer.warn(f"pod {pod.key} could not be evicted, although its quota uses more than it may: {error}")
        finally:
            self._evicting.discard(pod.uid)
