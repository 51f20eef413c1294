"""The ElasticQuota plugin: PreFilter rejects a pod that does not fit in its quota's runtime, its current share.

The runtime of a quota follows from the mins and requests of all quotas (see ``forest``). A pod counts as used from the
moment at which it is assumed on a node, so that no two pods are admitted for the same part of a quota.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Final

from prometheus_client.registry import Collector

from koordinator.api.elastic_quota import ElasticQuota as ElasticQuotaObject
from koordinator.api.kinds import ELASTIC_QUOTAS, POD_DISRUPTION_BUDGETS, PODS
from koordinator.api.modification import EVICTED, Cause, Modification
from koordinator.base.errors import ConfigurationError
from koordinator.base.services import Service, ServiceError
from koordinator.scheduler.engine.binding_points import ControllerWriter, CyclePreFilterPlugin, CycleState
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import EventHandler, Reason
from koordinator.scheduler.engine.framework_hooks import (
    Controller,
    ControllerProvider,
    DisruptionUnits,
    MetricsProvider,
    QuotaHookPlugin,
    QuotaReader,
    ServiceProvider,
)
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NO_PLAN, FailedAttempt, PostFilterPlugin, PostFilterResult
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.features import (
    DISABLE_DEFAULT_QUOTA,
    GUARANTEE_USAGE,
    IGNORE_OVERDUE,
    MULTI_QUOTA_TREE,
)
from koordinator.scheduler.plugins.elastic_quota.accounts import Accounts
from koordinator.scheduler.plugins.elastic_quota.admission import Admission, explain_quota
from koordinator.scheduler.plugins.elastic_quota.amounts import AccountSettings, from_wire
from koordinator.scheduler.plugins.elastic_quota.event_handlers import (
    QuotaEventHandlers,
    is_non_preemptible,
    request_of,
)
from koordinator.scheduler.plugins.elastic_quota.preemption import QuotaPreemption, RevokeController
from koordinator.scheduler.plugins.elastic_quota.status import StatusController, document_of, quota_gauges

SHARES_CHANGED: Final = "ElasticQuota/SharesChanged"
"""The kind of the event that quotas may admit more, for another reason than the deletion of an assigned pod."""


class ElasticQuota(
    CyclePreFilterPlugin,
    PostFilterPlugin,
    QuotaReader,
    ControllerProvider,
    ServiceProvider,
    MetricsProvider,
    EventHandler,
):
    name = "ElasticQuota"
    handle: Handle
    watches: ClassVar = (ELASTIC_QUOTAS, POD_DISRUPTION_BUDGETS)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        if args.hook_plugins:
            keys = [hook.key for hook in args.hook_plugins]
            expected = "none: a QuotaHookPlugin of another package takes part where it is listed in the profile"
            raise ConfigurationError("ElasticQuotaArgs.hookPlugins", keys, expected)
        self._handlers = _shared_handlers(args, view)
        self._admission = Admission(
            self.accounts, by_runtime=args.enable_runtime_quota, checks_parents=args.enable_check_parent_quota
        )
        # All profiles share one queue, so one of them announces the event.
        self._handlers.on_relief = self._announce
        spares_default = args.disable_default_quota_preemption
        self._preemption = QuotaPreemption(self, self.accounts, self.refusal_if_tried, spares_default=spares_default)

    @property
    def event_handler(self) -> EventHandler:
        return self._handlers

    @property
    def accounts(self) -> Accounts:
        return self._handlers.accounts

    def class_key(self, pod: PodInfo) -> Hashable:
        """None: results hold for one attempt, not for a class of pods."""
        return None

    def concerns(self, pod: PodInfo) -> bool:
        """Not while its quota is known to admit every pod."""
        return bool(self._hooks) or not self.accounts.admits_all(pod.pod.metadata)

    def pre_filter_cycle(self, state: CycleState, pod: PodInfo) -> Reason | None:
        return self._refusal(pod)

    @property
    def keeps_time(self) -> bool:
        return IGNORE_OVERDUE in self.view.gates

    def on_time(self, now: datetime) -> None:
        self._handlers.forget_overdue(now)

    def next_time_event(self) -> float | None:
        return self._handlers.next_overdue

    def time_events(self, now: datetime) -> Sequence[ClusterEvent]:
        return (ClusterEvent(SHARES_CHANGED),) if self._handlers.take_relief(now) else ()

    def refusal_if_tried(self, pod: PodInfo) -> Reason | None:
        return self._refusal(pod)

    def _refusal(self, pod: PodInfo) -> Reason | None:
        """Why the pod's quota does not admit it now; None if it does."""
        admits_all = self._handlers.accounts.admits_all(pod.pod.metadata)
        if admits_all and not self._hooks:
            return None
        node = self.accounts.node_of(pod.pod.metadata)
        if node is None:
            return None
        if not admits_all:
            is_counted = pod.uid in self.accounts.pods
            request, non_preemptible = request_of(pod, self.view), is_non_preemptible(pod.pod)
            why = self._admission.why_not(node, request, is_non_preemptible=non_preemptible, is_counted=is_counted)
            if why is not None:
                return Reason(why)
        for hook in self._hooks:
            if (why := hook.check_pod(node.name, pod)) is not None:
                return Reason(f"CheckPod failed for hook plugin {hook.name}, err: {why}")
        return None

    @cached_property
    def _hooks(self) -> Sequence[QuotaHookPlugin]:
        return self.handle.profile.all(QuotaHookPlugin)

    def quota_of(self, pod: PodInfo) -> str:
        node = self.accounts.node_of(pod.pod.metadata)
        return node.name if node is not None else ""

    def quota_amounts(self, quota: str) -> Mapping[str, Mapping[str, int]]:
        forest = self.accounts.forest
        node = forest.nodes.get(quota)
        if node is None:
            return {}
        specification = node.specification
        amounts = {"min": specification.min, "max": specification.max, "used": node.total.used}
        return {**amounts, "request": node.request, "runtime": forest.runtime(node)}

    def post_filter(self, pod: PodInfo, attempt: FailedAttempt) -> PostFilterResult:
        # For a pseudo pod, which represents a Reservation, the Reservation plugin preempts, if enabled.
        return NO_PLAN if pod.uid in self.view.pseudo_pods else self._preemption.plan(pod, attempt).result

    def waits_as(self, pod: PodInfo) -> Hashable:
        if self._hooks:
            # Hooks may depend on anything in the pod, so no two pods are equal for them.
            return pod.uid
        node = self.accounts.node_of(pod.pod.metadata)
        request = tuple(sorted(request_of(pod, self.view).items()))
        return node.name if node is not None else "", request, is_non_preemptible(pod.pod)

    def events_to_register(self) -> frozenset[str]:
        own = frozenset({EventKind.POD_DELETE, SHARES_CHANGED})
        return own.union(*(hook.events_to_register() for hook in self._hooks))

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Whether the quota would admit the pod now."""
        return self._refusal(pod) is None

    def controllers(self, writer: ControllerWriter) -> Sequence[Controller]:
        args = self.args
        status = StatusController(
            self.accounts,
            writer,
            args.quota_group_namespace,
            self._warn,
            publishes_runtime=args.enable_runtime_quota,
            hooks=self._hooks,
        )
        found: list[Controller] = [status]
        if args.monitor_all_quotas and args.enable_runtime_quota:
            delay, interval = args.delay_evict_time.total_seconds(), args.revoke_pod_interval.total_seconds()
            on_evicted, units = self._record_eviction, self.handle.plugin(DisruptionUnits)
            found.append(RevokeController(self.accounts, self.view, writer, delay, interval, on_evicted, units))
        return found

    def services(self) -> Mapping[str, Service]:
        return {"/quotas/:name/explanation": self._explanation, "/quotas/:name": self._one, "/quotas": self._all}

    def collectors(self) -> Sequence[Collector]:
        return (quota_gauges(lambda: self.accounts),)

    def _explanation(self, parameters: Mapping[str, str]) -> Any:
        document = explain_quota(self._admission, parameters["name"])
        if document is None:
            raise ServiceError(404, f"cannot find quota {parameters['name']}")
        return document

    def _one(self, parameters: Mapping[str, str]) -> Any:
        return self._document(parameters["name"], parameters)

    def _all(self, parameters: Mapping[str, str]) -> Any:
        forest, tree = self.accounts.forest, parameters.get("tree", "")
        names = [name for name, node in forest.nodes.items() if tree in ("", forest.tree_of(node.specification))]
        return {name: self._document(name, parameters) for name in names}

    def _document(self, name: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        forest, pods = self.accounts.forest, self.accounts.pods_of(name)
        node = forest.nodes.get(name)
        if node is None:
            raise ServiceError(404, f"cannot find quota {name}")
        return document_of(forest, node, pods if parameters.get("includePods") == "true" else ())

    def _warn(self, quota: ElasticQuotaObject, fault: str) -> None:
        self.handle.object_event(ELASTIC_QUOTAS, quota, "Warning", "InvalidQuota", "Reconcile", fault)

    def _record_eviction(self, pod: PodInfo) -> None:
        """For the audit: its quota has used more than it may for too long."""
        quota = self.quota_of(pod)
        record = Modification(
            action=EVICTED,
            actor=f"{ELASTIC_QUOTAS.name}/{quota}",
            node=pod.pod.spec.node_name,
            cause=Cause(code="QuotaOverused"),
        )
        note = f"its quota {quota} has used more than it may"
        self.handle.object_event(PODS, pod.pod, "Normal", "Evicted", "Revoking", note, modification=record)

    def _announce(self) -> None:
        if hasattr(self, "handle"):
            self.handle.announce(ClusterEvent(SHARES_CHANGED))


def _shared_handlers(args: Any, view: ClusterView) -> QuotaEventHandlers:
    """The handlers for these settings, shared by all profiles with equal settings."""
    settings = AccountSettings(
        default_max=from_wire(args.default_quota_group_max),
        system_max=from_wire(args.system_quota_group_max),
        scales_min=args.enable_min_quota_scale,
        guarantees_usage=GUARANTEE_USAGE in view.gates,
        by_tree=MULTI_QUOTA_TREE in view.gates,
        has_default=DISABLE_DEFAULT_QUOTA not in view.gates,
    )
    known: list[tuple[AccountSettings, QuotaEventHandlers]] = view.share(ElasticQuota.name, list)
    for each, handler in known:
        if each == settings:
            return handler
    handler = QuotaEventHandlers(view, settings)
    known.append((settings, handler))
    return handler
