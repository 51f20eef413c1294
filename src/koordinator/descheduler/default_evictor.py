"""DefaultEvictor: which pods upstream's descheduler lets be evicted, and their eviction by the Eviction API."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

from koordinator.api.codec import to_document
from koordinator.api.component_configuration import Strict
from koordinator.api.core import Namespace
from koordinator.api.duration import GoDuration
from koordinator.api.kinds import (
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
)
from koordinator.api.meta import LabelSelector
from koordinator.api.modification import EVICTED, Cause, Modification
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import DeleteOptions
from koordinator.api.volume import PersistentVolumeClaim
from koordinator.api.workload import PodDisruptionBudget
from koordinator.base.durations import format_duration
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.descheduler.configuration.arguments import Arguments, PriorityThreshold, checked_selector
from koordinator.descheduler.framework import (
    NOTHING_REFUSED,
    EvictionResult,
    EvictPlugin,
    FilterPlugin,
    Handle,
    Refusals,
    Snapshot,
)
from koordinator.descheduler.metrics import EvictionMetrics
from koordinator.descheduler.node_fit import TargetNodes
from koordinator.descheduler.pod_facts import (
    SYSTEM_CRITICAL_PRIORITY,
    has_claim,
    has_local_storage,
    is_evictable_by_annotation,
    is_of_daemon_set,
    is_system_critical,
    is_terminating,
    never_evicted,
    prefers_no_eviction,
)
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.event_series import reference_to
from koordinator.kube.informer import Informer
from koordinator.kube.pod_eviction import evict
from koordinator.model.label_selector import SelectorError, compile_selector, parse_selector

logger = logging.getLogger(__name__)

LOCAL_STORAGE: Final = "PodsWithLocalStorage"
DAEMON_SETS: Final = "DaemonSetPods"
SYSTEM_CRITICAL: Final = "SystemCriticalPods"
FAILED_BARE: Final = "FailedBarePods"
CLAIMS: Final = "PodsWithPVC"
WITHOUT_BUDGET: Final = "PodsWithoutPDB"
RESOURCE_CLAIMS: Final = "PodsWithResourceClaims"
_DEFAULT_PROTECTIONS: Final = (LOCAL_STORAGE, SYSTEM_CRITICAL, FAILED_BARE, DAEMON_SETS)
_EXTRA_PROTECTIONS: Final = (CLAIMS, WITHOUT_BUDGET, RESOURCE_CLAIMS)
_MANDATORY: Final = "Mandatory"
_OWNER_INDEX: Final = "owner-uid"
_NAMESPACE_INDEX: Final = "namespace"

_Check = Callable[[Pod], str]
"""Returns why the pod may not be evicted, "" when it may."""


class ProtectedStorageClass(Strict):
    name: str = ""


class PodsWithPVC(Strict):
    protected_storage_classes: list[ProtectedStorageClass] = []


class PodProtectionsConfig(Strict, rename={"pods_with_pvc": CLAIMS}):
    pods_with_pvc: PodsWithPVC | None = None


class PodProtections(Strict):
    extra_enabled: list[str] = []
    default_disabled: list[str] = []
    config: PodProtectionsConfig | None = None


class DefaultEvictorArgs(Arguments):
    """Upstream's, whose booleans are out of date: ``pod_protections`` says the same."""

    lenient = True

    node_selector: str = ""
    label_selector: LabelSelector | None = None
    namespace_label_selector: LabelSelector | None = None
    priority_threshold: PriorityThreshold | None = None
    node_fit: bool = False
    min_replicas: int = 0
    min_pod_age: GoDuration | None = None
    no_eviction_policy: str = ""
    pod_protections: PodProtections = PodProtections()
    evict_local_storage_pods: bool = False
    evict_daemon_set_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    ignore_pods_without_pdb: bool = False
    evict_failed_bare_pods: bool = False

    def completed(self, path: str) -> Self:
        checked_selector(self.label_selector, f"{path}.labelSelector")
        checked_selector(self.namespace_label_selector, f"{path}.namespaceLabelSelector")
        try:
            parse_selector(self.node_selector)
        except SelectorError as error:
            raise ConfigurationError(f"{path}.nodeSelector", self.node_selector, str(error)) from error
        if self.priority_threshold is not None:
            self.priority_threshold.check(f"{path}.priorityThreshold")
        if self.min_replicas < 0:
            raise ConfigurationError(f"{path}.minReplicas", self.min_replicas, "at least 0")
        if self.no_eviction_policy not in ("", "Preferred", _MANDATORY):
            raise ConfigurationError(f"{path}.noEvictionPolicy", self.no_eviction_policy, "Preferred or Mandatory")
        self._check_protections(path)
        return self

    @property
    def protections(self) -> Sequence[str]:
        """Those in force, by the lists where there are any, else by the booleans."""
        given = self.pod_protections
        if given.extra_enabled or given.default_disabled:
            kept = [name for name in _DEFAULT_PROTECTIONS if name not in given.default_disabled]
            return [*kept, *given.extra_enabled]
        return self._switched

    @property
    def _switched(self) -> Sequence[str]:
        """By the booleans."""
        switches = {
            LOCAL_STORAGE: not self.evict_local_storage_pods,
            DAEMON_SETS: not self.evict_daemon_set_pods,
            SYSTEM_CRITICAL: not self.evict_system_critical_pods,
            FAILED_BARE: not self.evict_failed_bare_pods,
            CLAIMS: self.ignore_pvc_pods,
            WITHOUT_BUDGET: self.ignore_pods_without_pdb,
        }
        return [name for name, is_on in switches.items() if is_on]

    @property
    def protected_classes(self) -> frozenset[str]:
        """Storage classes; empty: all."""
        config = self.pod_protections.config
        listed = config.pods_with_pvc if config is not None else None
        return frozenset(each.name for each in listed.protected_storage_classes) if listed else frozenset()

    def _check_protections(self, path: str) -> None:
        given = self.pod_protections
        if self._switched != DefaultEvictorArgs()._switched and (given.extra_enabled or given.default_disabled):
            allowed = (
                "cannot use Deprecated fields alongside PodProtections.ExtraEnabled or PodProtections.DefaultDisabled"
            )
            raise ConfigurationError(f"{path}.podProtections", to_document(given), allowed)
        for field, names, valid in (
            ("extraEnabled", given.extra_enabled, _EXTRA_PROTECTIONS),
            ("defaultDisabled", given.default_disabled, _DEFAULT_PROTECTIONS),
        ):
            for index, name in enumerate(names):
                if name not in valid or name in names[:index]:
                    allowed = f"each of {', '.join(valid)} at most once"
                    raise ConfigurationError(f"{path}.podProtections.{field}[{index}]", name, allowed)
        if CLAIMS in given.extra_enabled and "" in self.protected_classes:
            where = f"{path}.podProtections.config.{CLAIMS}.protectedStorageClasses"
            raise ConfigurationError(where, "", "name cannot be empty")


class DefaultEvictor(EvictPlugin, FilterPlugin):
    """Filters as upstream's plugin of the name does, and evicts directly."""

    name = "DefaultEvictor"
    args_type = DefaultEvictorArgs

    def __init__(self, args: DefaultEvictorArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._args = args
        self._metrics = EvictionMetrics(handle.metrics)
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

    def filter(self, pod: Pod) -> Refusals:
        if is_evictable_by_annotation(pod):
            return NOTHING_REFUSED
        if self._args.no_eviction_policy == _MANDATORY and prefers_no_eviction(pod):
            return ["pod would rather not be evicted, and noEvictionPolicy is Mandatory"]
        return [*never_evicted(pod, daemon_sets=False), *(text for check in self._checks if (text := check(pod)))]

    def pre_eviction_filter(self, pod: Pod) -> Refusals:
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
