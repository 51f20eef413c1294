"""DefaultEvictor: which pods upstream's descheduler lets be evicted, and their eviction by the Eviction API."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from koordinator.api.codec import to_document
from koordinator.api.core import Namespace
from koordinator.api.kinds import (
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
)
from koordinator.api.modification import EVICTED, Cause, Modification
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import DeleteOptions
from koordinator.api.volume import PersistentVolumeClaim
from koordinator.api.workload import PodDisruptionBudget
from koordinator.base.durations import format_duration
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.descheduler.configuration.arguments import checked_selector
from koordinator.descheduler.default_evictor_arguments import (
    CLAIMS,
    DAEMON_SETS,
    FAILED_BARE,
    LOCAL_STORAGE,
    MANDATORY,
    RESOURCE_CLAIMS,
    SYSTEM_CRITICAL,
    WITHOUT_BUDGET,
    DefaultEvictorArgs,
)
from koordinator.descheduler.framework import (
    NOTHING_REFUSED,
    EvictionResult,
    EvictPlugin,
    FilterPlugin,
    Handle,
    Refusals,
    Snapshot,
)
from koordinator.descheduler.gangs import Gang, Gangs
from koordinator.descheduler.metrics import EvictionMetrics
from koordinator.descheduler.node_fit import TargetNodes
from koordinator.descheduler.pod_facts import (
    SYSTEM_CRITICAL_PRIORITY,
    has_claim,
    has_local_storage,
    is_evictable_by_annotation,
    is_of_daemon_set,
    is_ready,
    is_system_critical,
    is_terminating,
    never_evicted,
    prefers_no_eviction,
)
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.event_series import reference_to
from koordinator.kube.informer import Informer
from koordinator.kube.pod_eviction import evict
from koordinator.model.gang_declaration import GENERIC_WORKLOAD, WHOLE
from koordinator.model.label_selector import SelectorError, compile_selector, parse_selector

logger = logging.getLogger(__name__)

_OWNER_INDEX: Final = "owner-uid"
_NAMESPACE_INDEX: Final = "namespace"

_Check = Callable[[Pod], str]
"""Returns why the pod may not be evicted, "" when it may."""


class DefaultEvictor(EvictPlugin, FilterPlugin):
    """Filters as upstream's plugin of the name does, and evicts directly."""

    name = "DefaultEvictor"
    args_type = DefaultEvictorArgs

    def __init__(self, args: DefaultEvictorArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._args = args
        self._metrics = EvictionMetrics(handle.metrics)
        self._gangs: Gangs | None = None
        if args.gang_policy == WHOLE:
            pods, reads_workloads = handle.informers.informer(PODS), GENERIC_WORKLOAD in handle.gates
            self._gangs = Gangs(
                pods,
                handle.informers,
                args.gang_policy,
                reads_workloads=reads_workloads,
                stays=lambda pod: is_ready(pod) and pod.metadata.uid not in self._taken,
            )
        self._taken: set[str] = set()
        """The uids of the members that were evicted in this cycle."""
        self._snapshot: Snapshot | None = None
        self._targets: TargetNodes | None = None
        self._threshold = SYSTEM_CRITICAL_PRIORITY
        self._namespaces: Informer[Namespace] | None = None
        if args.namespace_label_selector is not None:
            self._namespaces = handle.informers.informer(NAMESPACES)
        self._checks: list[_Check] = [
            *self._protections(),
            *self._restrictions(),
        ]

    async def start(self) -> None:
        try:
            await self.handle.client.raw("GET", "/apis/policy")
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            raise KoordinatorError("server does not support eviction policy") from error
        threshold = self._args.priority_threshold
        if threshold is None:
            return
        if threshold.name:
            found = await self.handle.client.get(PRIORITY_CLASSES, threshold.name)
            self._threshold = found.value
        elif threshold.value is not None:
            self._threshold = threshold.value
        if self._threshold > SYSTEM_CRITICAL_PRIORITY:
            allowed = f"priority threshold can't be greater than {SYSTEM_CRITICAL_PRIORITY}"
            raise ConfigurationError("DefaultEvictorArgs.priorityThreshold", self._threshold, allowed)

    async def prepare(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._targets = None
        self._taken = set()
        if self._gangs is not None:
            self._gangs.forget()

    def filter(self, pod: Pod) -> Refusals:
        gang = self._gang_of(pod)
        if gang is not None and pod.metadata.uid in self._taken:
            return [f"gang {gang.id} has been evicted in this cycle"]
        return _of_all(gang, self._filter) if gang is not None else self._filter(pod)

    def _filter(self, pod: Pod) -> Refusals:
        if is_evictable_by_annotation(pod):
            return NOTHING_REFUSED
        if self._args.no_eviction_policy == MANDATORY and prefers_no_eviction(pod):
            return ["pod would rather not be evicted, and noEvictionPolicy is Mandatory"]
        return [*never_evicted(pod, daemon_sets=False), *(text for check in self._checks if (text := check(pod)))]

    def pre_eviction_filter(self, pod: Pod) -> Refusals:
        gang = self._gang_of(pod)
        return _of_all(gang, self._pre_eviction_filter) if gang is not None else self._pre_eviction_filter(pod)

    def _pre_eviction_filter(self, pod: Pod) -> Refusals:
        refusals = []
        if self._args.node_fit and self._snapshot is not None and not self._fits_elsewhere(self._snapshot, pod):
            refusals.append(
                "pod does not fit on any other node because of nodeSelector(s), Taint(s), or nodes marked as "
                "unschedulable"
            )
        if self._namespaces is not None:
            selector = compile_selector(self._args.namespace_label_selector)
            namespace = self._namespaces.get(pod.metadata.namespace)
            if namespace is None or not selector.matches(namespace.metadata.labels):
                refusals.append("pod namespace do not match the namespaceLabelSelector filter in the policy parameter")
        return refusals

    async def evict(self, pod: Pod, plugin: str, reason: str, options: DeleteOptions | None) -> EvictionResult:
        gang = self._gang_of(pod)
        if gang is None or self._gangs is None:
            result = await self._evict(pod, plugin, reason, options)
            if result.evicted:
                self._take(pod)
            return result
        members = [member for member in gang.members if member.metadata.uid not in self._taken]
        problem = self._gangs.budget_problem(members)
        if problem:
            return EvictionResult(False, f"gang {gang.id}: {problem}")
        self._take(*members)
        whole = f"{reason}, with all of gang {gang.id}"
        results = [await self._evict(member, plugin, whole, options) for member in members]
        failed = "; ".join(each.message for each in results if not each.evicted)
        return EvictionResult(not failed, failed)

    def plan_eviction(self, pod: Pod) -> EvictionResult:
        gang = self._gang_of(pod)
        self._take(*gang.members if gang is not None else (pod,))
        return EvictionResult(True)

    def _gang_of(self, pod: Pod) -> Gang | None:
        return self._gangs.of(pod) if self._gangs is not None else None

    def _take(self, *pods: Pod) -> None:
        """The pods leave in this cycle, whatever the informer shows: their gangs can spare fewer of the others."""
        if self._gangs is not None:
            self._taken.update(pod.metadata.uid for pod in pods)
            self._gangs.forget()

    async def _evict(self, pod: Pod, plugin: str, reason: str, options: DeleteOptions | None) -> EvictionResult:
        given = to_document(options) if options is not None else {}
        try:
            await evict(self.handle.client, pod.metadata, given)
        except KubeError as error:
            self._metrics.count("error", plugin, pod)
            return EvictionResult(False, _failure(pod, error))
        self._metrics.count("success", plugin, pod)
        note = f"pod evicted by {reason}"
        record = Modification(
            action=EVICTED,
            actor=plugin,
            node=pod.spec.node_name,
            cause=Cause(code=plugin, text=reason),
        )
        about = reference_to(PODS, pod)
        self.handle.recorder.event(about, "Normal", "Descheduled", "Evicting", note, modification=record)
        return EvictionResult(True)

    def _fits_elsewhere(self, snapshot: Snapshot, pod: Pod) -> bool:
        if self._targets is None:
            selector = parse_selector(self._args.node_selector)
            nodes = [node for node in snapshot.nodes if selector.matches(node.metadata.labels)]
            self._targets = TargetNodes(snapshot, nodes)
        return bool(self._targets.fitting(pod).any())

    def _protections(self) -> Sequence[_Check]:
        """The checks of the protections, in upstream's order."""
        checks: Mapping[str, Sequence[_Check]] = {
            SYSTEM_CRITICAL: (
                lambda pod: _text(is_system_critical(pod), "pod has system critical priority"),
                self._priority_refusal,
            ),
            FAILED_BARE: (lambda pod: _text(not pod.metadata.owner_references, "pod does not have any ownerRefs"),),
            LOCAL_STORAGE: (lambda pod: _text(has_local_storage(pod), "pod has local storage"),),
            DAEMON_SETS: (lambda pod: _text(is_of_daemon_set(pod), "pod is a DaemonSet pod"),),
            CLAIMS: (self._claim_check(),),
            WITHOUT_BUDGET: (self._budget_check(),),
            RESOURCE_CLAIMS: (lambda pod: _text(bool(pod.spec.resource_claims), "pod has ResourceClaims"),),
        }
        found = [check for name, listed in checks.items() if name in self._args.protections for check in listed]
        if FAILED_BARE not in self._args.protections:
            found.append(
                lambda pod: _text(
                    not pod.metadata.owner_references and pod.status.phase != "Failed",
                    "pod does not have any ownerRefs and is not in failed phase",
                )
            )
        return found

    def _priority_refusal(self, pod: Pod) -> str:
        if self._args.priority_threshold is None or pod.spec.priority is None or pod.spec.priority < self._threshold:
            return ""
        return "pod has higher priority than specified priority class threshold"

    def _claim_check(self) -> _Check:
        protected = self._args.protected_classes
        if CLAIMS not in self._args.protections or not protected:
            return lambda pod: _text(has_claim(pod), "pod with PVC is protected against eviction")
        claims = self.handle.informers.informer(PERSISTENT_VOLUME_CLAIMS)
        return lambda pod: _protected_claim(pod, claims, protected)

    def _budget_check(self) -> _Check:
        if WITHOUT_BUDGET not in self._args.protections:
            return lambda pod: ""
        budgets = self.handle.informers.informer(POD_DISRUPTION_BUDGETS, indexes={_NAMESPACE_INDEX: _namespaces})
        return lambda pod: _text(not _is_covered(pod, budgets), "pod does not have a PodDisruptionBudget")

    def _restrictions(self) -> Sequence[_Check]:
        checks: list[_Check] = []
        selector = checked_selector(self._args.label_selector, "DefaultEvictorArgs.labelSelector")
        if selector is not None:
            text = "pod labels do not match the labelSelector filter in the policy parameter"
            checks.append(lambda pod: _text(not selector.matches(pod.metadata.labels), text))
        if self._args.min_replicas > 1:
            pods = self.handle.informers.informer(PODS, indexes={_OWNER_INDEX: _owner_uids})
            checks.append(lambda pod: self._too_few(pod, pods))
        if self._args.min_pod_age is not None:
            checks.append(self._too_young)
        return checks

    def _too_few(self, pod: Pod, pods: Informer[Pod]) -> str:
        owners = pod.metadata.owner_references
        if len(owners) != 1:
            return ""
        # A pod that is on its way out is no replica that would be left.
        count = sum(not is_terminating(each) for each in pods.by_index(_OWNER_INDEX, owners[0].uid))
        least = self._args.min_replicas
        return _text(count < least, f"owner has {count} replicas which is less than minReplicas of {least}")

    def _too_young(self, pod: Pod) -> str:
        least, started = self._args.min_pod_age, pod.status.start_time
        if least is None or (started is not None and self.handle.clock.now() - started >= least):
            return ""
        return f"pod age is not older than MinPodAge: {format_duration(least)}"


def _of_all(gang: Gang, check: Callable[[Pod], Refusals]) -> Refusals:
    """Why the first member that stays does, with which the others do."""
    for member in gang.members:
        if refusals := check(member):
            return [f"gang {gang.id}: {member.metadata.key}: {each}" for each in refusals]
    return NOTHING_REFUSED


def _text(is_refused: bool, text: str) -> str:
    return text if is_refused else ""


def _owner_uids(pod: Pod) -> Sequence[str]:
    return [owner.uid for owner in pod.metadata.owner_references]


def _protected_claim(pod: Pod, claims: Informer[PersistentVolumeClaim], protected: frozenset[str]) -> str:
    """A claim whose class is not known is protected."""
    for volume in pod.spec.volumes:
        source = volume.persistent_volume_claim
        if source is None:
            continue
        claim = claims.get(f"{pod.metadata.namespace}/{source.claim_name}")
        storage_class = claim.spec.storage_class_name if claim is not None else None
        if not storage_class:
            return f"the storage class of claim {source.claim_name} is not known"
        if storage_class in protected:
            return f'pod using protected storage class "{storage_class}"'
    return ""


def _namespaces(budget: PodDisruptionBudget) -> Sequence[str]:
    return (budget.metadata.namespace,)


def _is_covered(pod: Pod, budgets: Informer[PodDisruptionBudget]) -> bool:
    for budget in budgets.by_index(_NAMESPACE_INDEX, pod.metadata.namespace):
        try:
            selector = compile_selector(budget.spec.selector)
        except SelectorError:
            continue
        if selector.matches(pod.metadata.labels):
            return True
    return False


def _failure(pod: Pod, error: KubeError) -> str:
    if isinstance(error, ApiStatusError) and error.is_too_many_requests:
        return f'error when evicting pod (ignoring) "{pod.metadata.name}": {error}'
    if isinstance(error, ApiStatusError) and error.is_not_found:
        return f'pod not found when evicting "{pod.metadata.name}": {error}'
    return str(error)
