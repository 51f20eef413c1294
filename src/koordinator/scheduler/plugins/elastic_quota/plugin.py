"""ElasticQuota: a pod is admitted if its quota's present share has room for it.

The share of a quota follows from what all quotas are guaranteed and request (see ``forest``); what pods use is counted
from the moment at which a node is chosen for them, so that no two pods are admitted for the same room.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, Final

from koordinator.api.kinds import ELASTIC_QUOTAS, POD_DISRUPTION_BUDGETS
from koordinator.scheduler.engine.cycle_state import CyclePreFilterPlugin, CycleState
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import Observer, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import FailedAttempt, PostFilterPlugin, PostFilterResult
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.elastic_quota.accounts import Accounts, AccountSettings
from koordinator.scheduler.plugins.elastic_quota.admission import AdmissionRules, why_not
from koordinator.scheduler.plugins.elastic_quota.amounts import from_wire
from koordinator.scheduler.plugins.elastic_quota.following import QuotaObserver, is_non_preemptible, request_of
from koordinator.scheduler.plugins.elastic_quota.preemption import QuotaPreemption

SHARES_CHANGED: Final = "ElasticQuota/SharesChanged"
"""The kind of event of a quota that may admit more, other than by a pod that leaves its node."""
MULTI_QUOTA_TREE: Final = "MultiQuotaTree"
DISABLE_DEFAULT_QUOTA: Final = "DisableDefaultQuota"
GUARANTEE_USAGE: Final = "ElasticQuotaGuaranteeUsage"
IGNORE_LEAVING: Final = "ElasticQuotaImmediateIgnoreTerminatingPod"
GATES: Final = (MULTI_QUOTA_TREE, DISABLE_DEFAULT_QUOTA, GUARANTEE_USAGE, IGNORE_LEAVING)


class ElasticQuota(CyclePreFilterPlugin, PostFilterPlugin, Observer):
    name = "ElasticQuota"
    watches: ClassVar = (ELASTIC_QUOTAS, POD_DISRUPTION_BUDGETS)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._rules = AdmissionRules(args.enable_runtime_quota, args.enable_check_parent_quota)
        self._observer = _shared_observer(args, view)
        self._observer.told_of_relief.append(self._announce)
        self._preemption = QuotaPreemption(
            self.name, view, self.accounts, self.refusal, spares_default=args.disable_default_quota_preemption
        )

    @property
    def told(self) -> Observer:
        return self._observer

    @property
    def accounts(self) -> Accounts:
        return self._observer.accounts

    def class_key(self, pod: PodInfo) -> Hashable:
        """What quotas say holds for one attempt, not for a class of pods."""
        return None

    def pre_filter_cycle(self, state: CycleState, pod: PodInfo) -> Reason | None:
        refusal = self.refusal(pod)
        return Reason(refusal) if refusal is not None else None

    def refusal(self, pod: PodInfo) -> str | None:
        """Why the pod's quota does not admit it now; None if it does."""
        node = self.accounts.node_of(pod.pod.metadata)
        if node is None:
            return None
        return why_not(
            self.accounts,
            node,
            request_of(pod, self.view),
            is_non_preemptible=is_non_preemptible(pod.pod),
            is_counted=self.accounts.pod(pod.uid) is not None,
            rules=self._rules,
        )

    def post_filter(self, pod: PodInfo, attempt: FailedAttempt) -> PostFilterResult:
        return self._preemption.plan(pod, attempt)

    def waits_as(self, pod: PodInfo) -> Hashable:
        node = self.accounts.node_of(pod.pod.metadata)
        request = tuple(sorted(request_of(pod, self.view).items()))
        return node.name if node is not None else "", request, is_non_preemptible(pod.pod)

    def wakes_on(self) -> frozenset[str]:
        return frozenset({EventKind.POD_DELETE, SHARES_CHANGED})

    def may_help(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Whether the quota would admit the pod now."""
        return self.refusal(pod) is None

    def _announce(self) -> None:
        if hasattr(self, "handle"):
            self.handle.announce(ClusterEvent(SHARES_CHANGED))


def _shared_observer(args: Any, view: ClusterView) -> QuotaObserver:
    """One for all profiles whose arguments make the same numbers."""
    settings = AccountSettings(
        default_max=from_wire(args.default_quota_group_max),
        system_max=from_wire(args.system_quota_group_max),
        scales_min=args.enable_min_quota_scale,
        guarantees_usage=GUARANTEE_USAGE in view.gates,
        by_tree=MULTI_QUOTA_TREE in view.gates,
        has_default=DISABLE_DEFAULT_QUOTA not in view.gates,
    )
    known: list[tuple[AccountSettings, QuotaObserver]] = view.shared.setdefault(ElasticQuota.name, [])
    for each, observer in known:
        if each == settings:
            return observer
    observer = QuotaObserver(view, settings, counts_leaving=IGNORE_LEAVING not in view.gates)
    known.append((settings, observer))
    return observer
