"""Evicting the pods of a quota: for another pod of the quota, which it must admit when the victims have left, and to
reclaim what a quota has used beyond its runtime for too long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeVar

from koordinator.api.elastic_quota import DEFAULT_QUOTA, SYSTEM_QUOTA
from koordinator.base.errors import KoordinatorError
from koordinator.scheduler.engine.binding_points import ControllerWriter
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.framework_hooks import DisruptionUnits
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import VictimUnit
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.elastic_quota.accounts import Accounts
from koordinator.scheduler.plugins.elastic_quota.amounts import Amounts, add, exceeding, masked
from koordinator.scheduler.plugins.elastic_quota.event_handlers import is_non_preemptible, request_of
from koordinator.scheduler.plugins.preemption import NodePreemption, Preempting
from koordinator.scheduler.plugins.victims import Gangs, MayBeVictim, importance, together

_NAMED_NODES: Final = 20
"""Up to this many nodes without victims are named in the message; of more, only the count. The original names all."""

Refusal = Callable[[PodInfo], Reason | None]
"""Returns why the pod's quota does not admit it, also in the state of a simulation; None if it does."""


class QuotaPreemption(NodePreemption):
    """``spares_default``: pods of the default quota are no victims, since many of them do not use quotas on purpose."""

    is_local: ClassVar = False  # What a quota admits depends on its pods on all nodes.

    def __init__(self, plugin: Preempting, accounts: Accounts, refusal: Refusal, *, spares_default: bool) -> None:
        super().__init__(plugin)
        self._accounts = accounts
        self.require = lambda pod, row: refusal(pod)
        self._spares_default = spares_default

    def victims_of(self, pod: PodInfo) -> MayBeVictim | None:
        """The preemptible pods of the pod's quota."""
        quota = self._quota_of(pod)
        lowest = self._accounts.lowest_priority(quota)
        if lowest is None or lowest >= pod.priority or (self._spares_default and quota == DEFAULT_QUOTA):
            return None
        return lambda other: not is_non_preemptible(other.pod) and self._quota_of(other) == quota

    def is_awaited(self, pod: PodInfo, other: PodInfo) -> bool:
        """As in the original, it waits for each pod of its quota that is being deleted, whoever deletes it."""
        return other.pod.metadata.deletion_timestamp is not None and self._quota_of(other) == self._quota_of(pod)

    def _quota_of(self, pod: PodInfo) -> str:
        node = self._accounts.node_of(pod.pod.metadata)
        return node.name if node is not None else ""

    def no_victims(self, pod: PodInfo, rows: Sequence[int]) -> Mapping[str, int]:
        name = pod.pod.metadata.name
        if len(rows) > _NAMED_NODES:
            return {f"No victims found on these nodes for preemptor pod {name}": len(rows)}
        names = self.view.columns.names
        return {f"No victims found on node {names[row]} for preemptor pod {name}": 1 for row in rows}


T = TypeVar("T")


def to_revoke(
    used: Mapping[str, int], limit: Mapping[str, int], pods: Sequence[tuple[T, Mapping[str, int]]]
) -> list[T]:
    """The pods to evict so that no more than ``limit`` is used, as few as possible of the least important.

    ``pods``: the preemptible pods, or units of pods, the most important first, each with its request of those resources
    that the quota counts. If evicting all of them is not enough, all of them are
    evicted, as in the original.
    """
    left: Amounts = dict(used)
    taken: list[tuple[T, Mapping[str, int]]] = []
    for pod, request in reversed(pods):
        if not exceeding(left, limit):
            break
        add(left, request, -1)
        taken.append((pod, request))
    if exceeding(left, limit):
        return [pod for pod, _ in taken]
    revoked: list[T] = []
    for pod, request in reversed(taken):
        add(left, request)
        if exceeding(left, limit):
            add(left, request, -1)
            revoked.append(pod)
    return revoked


@dataclass(eq=False)
class RevokeController:
    """Evicts pods of quotas that have exceeded their limit for more than ``delay`` seconds; checks every ``interval``
    seconds."""

    accounts: Accounts
    view: ClusterView
    writer: ControllerWriter
    delay: float
    interval: float
    on_evicted: Callable[[PodInfo], None]
    units: DisruptionUnits | None = None
    """Which pods leave together, if the profile says so."""
    name: str = "QuotaOverUsedRevokeController"
    _since: dict[str, float] = field(default_factory=dict)
    """Quota -> when it was last seen within its limit, or had pods evicted, in seconds of the monotonic clock."""
    _evicting: set[str] = field(default_factory=set)
    """The uids of pods whose eviction is under way."""

    async def run(self) -> None:
        """Check periodically until cancelled."""
        while True:
            for pod in self._due(self.writer.monotonic()):
                if pod.uid not in self._evicting:
                    self._evicting.add(pod.uid)
                    # Each by itself: one that is not answered delays no other.
                    self.writer.start(self._evict(pod), f"eviction of pod {pod.key}, whose quota uses too much")
            await self.writer.sleep(self.interval)

    def _due(self, now: float) -> list[PodInfo]:
        """The pods to evict now. The delay of their quotas starts anew."""
        found: list[PodInfo] = []
        forest = self.accounts.forest
        self._since = {name: since for name, since in self._since.items() if name in forest.nodes}
        for name, node in forest.nodes.items():
            if name == SYSTEM_QUOTA or node.detached:
                continue
            since = self._since.setdefault(name, now)
            limit = forest.limit(node)
            if not exceeding(node.total.used, limit):
                self._since[name] = now
            elif now - since > self.delay:
                self._since[name] = now
                found += together(to_revoke(node.total.used, limit, self._units_of(name, node.specification.max)))
        return found

    def _units_of(self, quota: str, counted: Mapping[str, int]) -> list[tuple[VictimUnit, Mapping[str, int]]]:
        uids = {pod.uid for pod in self.accounts.pods_of(quota) if pod.is_assigned and not pod.kind.is_non_preemptible}
        placed = (pod for pods in self.view.pods_on.values() for pod in pods.values() if pod.uid in uids)
        requests = {
            pod.uid: (pod, masked(request_of(pod, self.view), counted)) for pod in placed if self._may_leave(pod)
        }
        in_order = sorted([pod for pod, _ in requests.values()], key=importance)
        # A gang with members that other quotas admitted does not leave: what those use is not reclaimed here.
        units, _ = Gangs(self.units, lambda pod: pod.uid in requests).units(in_order)
        return [(unit, _total([requests[pod.uid][1] for pod in unit.pods])) for unit in units]

    def _may_leave(self, pod: PodInfo) -> bool:
        is_pseudo_pod = pod.uid in self.view.pseudo_pods
        return not is_pseudo_pod and not is_non_preemptible(pod.pod) and pod.pod.metadata.deletion_timestamp is None

    async def _evict(self, pod: PodInfo) -> None:
        try:
            await self.writer.evict(pod.pod.metadata)
        except KoordinatorError as error:
            self.writer.warn(f"pod {pod.key} could not be evicted, although its quota uses more than it may: {error}")
        else:
            self.on_evicted(pod)
        finally:
            self._evicting.discard(pod.uid)


def _total(requests: Iterable[Mapping[str, int]]) -> Amounts:
    total: Amounts = {}
    for request in requests:
        add(total, request)
    return total
