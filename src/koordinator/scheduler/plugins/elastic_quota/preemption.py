"""Preemption within a quota: the victims are of the quota of the pod, which it must admit when they have left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from koordinator.api.elastic_quota import DEFAULT_QUOTA
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import FailedAttempt
from koordinator.scheduler.engine.simulation import Simulate, Simulation
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.elastic_quota.accounts import Accounts
from koordinator.scheduler.plugins.elastic_quota.event_handlers import is_non_preemptible
from koordinator.scheduler.plugins.preemption import MayBeVictim, NodePolicy

_NAMED_NODES: Final = 20
"""Up to this many nodes without victims are named in the message; of more, only the count. The original names all."""

Refusal = Callable[[PodInfo], str | None]
"""Returns why the pod's quota does not admit it, also in the state of a simulation; None if it does."""


class QuotaPolicy(NodePolicy):
    """``spares_default``: pods of the default quota are no victims, since many of them do not use quotas on purpose."""

    is_local: ClassVar = False  # What a quota admits depends on its pods on all nodes.

    def __init__(
        self, view: ClusterView, accounts: Accounts, refusal: Refusal, simulate: Simulate, *, spares_default: bool
    ) -> None:
        self._view = view
        self._accounts = accounts
        self._refusal = refusal
        self._simulate = simulate
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

    def reprieve(self, attempt: FailedAttempt, row: int, candidates: Sequence[PodInfo]) -> list[PodInfo] | None:
        with self._simulation(attempt) as simulation:
            return simulation.reprieve(attempt.state.pod, row, candidates)

    def reasons(self, attempt: FailedAttempt, row: int, without: Sequence[PodInfo]) -> Sequence[Reason]:
        with self._simulation(attempt) as simulation:
            for other in without:
                simulation.remove(other)
            return simulation.reasons(attempt.state.pod, row)

    def _simulation(self, attempt: FailedAttempt) -> Simulation:
        simulation = self._simulate(attempt)
        simulation.require(self._admits)
        return simulation

    def _admits(self, pod: PodInfo, row: int) -> Reason | None:
        refusal = self._refusal(pod)
        return Reason(refusal) if refusal is not None else None

    def no_victims(self, pod: PodInfo, rows: Sequence[int]) -> Mapping[str, int]:
        name = pod.pod.metadata.name
        if len(rows) > _NAMED_NODES:
            return {f"No victims found on these nodes for preemptor pod {name}": len(rows)}
        names = self._view.columns.names
        return {f"No victims found on node {names[row]} for preemptor pod {name}": 1 for row in rows}
