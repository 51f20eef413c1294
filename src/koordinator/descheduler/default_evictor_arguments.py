"""DefaultEvictorArgs: upstream's, with what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

from koordinator.api.codec import to_document
from koordinator.api.component_configuration import Strict
from koordinator.api.duration import GoDuration
from koordinator.api.meta import LabelSelector
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.configuration.arguments import Arguments, PriorityThreshold, checked_selector
from koordinator.model.gang_declaration import GANG_POLICIES, MEMBERS
from koordinator.model.label_selector import SelectorError, parse_selector

LOCAL_STORAGE: Final = "PodsWithLocalStorage"
DAEMON_SETS: Final = "DaemonSetPods"
SYSTEM_CRITICAL: Final = "SystemCriticalPods"
FAILED_BARE: Final = "FailedBarePods"
CLAIMS: Final = "PodsWithPVC"
WITHOUT_BUDGET: Final = "PodsWithoutPDB"
RESOURCE_CLAIMS: Final = "PodsWithResourceClaims"
_DEFAULT_PROTECTIONS: Final = (LOCAL_STORAGE, SYSTEM_CRITICAL, FAILED_BARE, DAEMON_SETS)
_EXTRA_PROTECTIONS: Final = (CLAIMS, WITHOUT_BUDGET, RESOURCE_CLAIMS)
MANDATORY: Final = "Mandatory"


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
    gang_policy: str = MEMBERS
    """What is evicted with a member of a gang; upstream has no such argument."""

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
        if self.gang_policy not in GANG_POLICIES:
            raise ConfigurationError(f"{path}.gangPolicy", self.gang_policy, f"one of {', '.join(GANG_POLICIES)}")
        if self.no_eviction_policy not in ("", "Preferred", MANDATORY):
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
