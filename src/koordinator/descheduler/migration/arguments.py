"""MigrationControllerArgs of descheduler/v1alpha2: defaults and what is allowed."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, Self

import msgspec

from koordinator.api.component_configuration import Strict
from koordinator.api.duration import GoDuration
from koordinator.api.meta import LabelSelector
from koordinator.api.pod_migration_job import EVICT_DIRECTLY, RESERVATION_FIRST, DeleteOptions
from koordinator.base.durations import format_duration
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.configuration.arguments import (
    Arguments,
    Namespaces,
    PriorityThreshold,
    check_namespaces,
    checked_selector,
)
from koordinator.model.gang_declaration import GANG_POLICIES, MEMBERS, WHOLE

EVICTION: Final = "Eviction"
DELETE: Final = "Delete"
SOFT_EVICTION: Final = "SoftEviction"
EVICTION_POLICIES: Final = (EVICTION, DELETE, SOFT_EVICTION)

MAX_MIGRATING_GLOBALLY: Final = "MaxMigratingGlobally"
MAX_MIGRATING_PER_NODE: Final = "MaxMigratingPerNode"
MAX_MIGRATING_PER_NAMESPACE: Final = "MaxMigratingPerNamespace"
MAX_MIGRATING_PER_WORKLOAD: Final = "MaxMigratingPerWorkload"
MAX_UNAVAILABLE_PER_WORKLOAD: Final = "MaxUnavailablePerWorkload"
EXPECTED_REPLICAS: Final = "ExpectedReplicas"
PVC: Final = "PVC"
LOCAL_STORAGE: Final = "LocalStorage"
SYSTEM_CRITICAL: Final = "SystemCritical"
BARE_PODS: Final = "BarePods"
PRIORITY_THRESHOLD: Final = "PriorityThreshold"
LABEL_SELECTOR: Final = "LabelSelector"
NAMESPACES: Final = "Namespaces"
NODE_FIT: Final = "NodeFit"
EVICTION_GATES: Final = (
    *(MAX_MIGRATING_GLOBALLY, MAX_MIGRATING_PER_NODE, MAX_MIGRATING_PER_NAMESPACE, MAX_MIGRATING_PER_WORKLOAD),
    *(MAX_UNAVAILABLE_PER_WORKLOAD, EXPECTED_REPLICAS, PVC, LOCAL_STORAGE, SYSTEM_CRITICAL, BARE_PODS),
    *(PRIORITY_THRESHOLD, LABEL_SELECTOR, NAMESPACES, NODE_FIT),
)
"""The checks that ``skipEvictionGates`` may name."""

WORKLOAD: Final = "workload"
NAMESPACE: Final = "namespace"
LIMITED_OBJECTS: Final = (WORKLOAD, NAMESPACE)
"""The keys of ``objectLimiters``."""

_MODES: Final = (RESERVATION_FIRST, EVICT_DIRECTLY)
_PERCENT: Final = re.compile(r"(\d+)%")


class ObjectLimiter(Strict):
    """How often pods of one object may be evicted: ``max_migrating`` in each ``duration``."""

    duration: GoDuration = GoDuration()
    max_migrating: int | str | None = None
    burst: int = 0


class ArbitrationArgs(Strict):
    enabled: bool = True
    interval: GoDuration = GoDuration(milliseconds=500)


def _workload_limiter() -> dict[str, ObjectLimiter]:
    return {WORKLOAD: ObjectLimiter(duration=GoDuration(minutes=5))}


class MigrationControllerArgs(Arguments):
    """The arguments with their defaults; what is unset and has no default is None or empty."""

    dry_run: bool = False
    max_concurrent_reconciles: int = 1
    evict_failed_bare_pods: bool = False
    evict_all_bare_pods: bool = False
    evict_local_storage_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    priority_threshold: PriorityThreshold | None = None
    label_selector: LabelSelector | None = None
    namespaces: Namespaces | None = None
    node_fit: bool = False
    node_selector: str = ""
    skip_eviction_gates: list[str] = []
    max_migrating_globally: int | None = None
    max_migrating_per_node: int | None = 2
    max_migrating_per_namespace: int | None = None
    max_migrating_per_workload: int | str | None = None
    max_unavailable_per_workload: int | str | None = None
    skip_check_expected_replicas: bool | None = None
    object_limiters: dict[str, ObjectLimiter] = msgspec.field(default_factory=_workload_limiter)
    cool_down: GoDuration = GoDuration()
    """For how long the replacement of an evicted pod is not moved; the original has no such argument."""
    gang_policy: str = MEMBERS
    """What moves with a member of a gang; the original has no such argument."""
    evict_disrupted_gangs: bool = False
    """Whether what a disruption leaves of a gang is evicted, where that is too little; with the policy Whole."""
    default_job_mode: str = RESERVATION_FIRST
    default_job_ttl: GoDuration = msgspec.field(default=GoDuration(minutes=5), name="defaultJobTTL")
    scheduler_names: list[str] = msgspec.field(default_factory=lambda: ["koord-scheduler"])
    evict_qps: float | str = msgspec.field(default=10.0, name="evictQPS")
    evict_burst: int = 1
    eviction_policy: str = EVICTION
    default_delete_options: DeleteOptions | None = None
    arbitration_args: ArbitrationArgs = ArbitrationArgs()

    def completed(self, path: str) -> Self:
        """See Arguments."""
        args = msgspec.structs.replace(self, object_limiters=self.object_limiters or _workload_limiter())
        for check in (_check_numbers, _check_choices, _check_limits):
            check(args, path)
        check_namespaces(args.namespaces, f"{path}.namespaces")
        checked_selector(args.label_selector, f"{path}.labelSelector")
        if args.priority_threshold is not None:
            args.priority_threshold.check(f"{path}.priorityThreshold")
        return args

    def skips(self, gate: str) -> bool:
        """Whether ``skip_eviction_gates`` names this check."""
        return gate in self.skip_eviction_gates

    @property
    def evictions_per_second(self) -> float:
        """``evict_qps`` as a number; a text that is none counts as 0, which is refused."""
        try:
            return float(self.evict_qps)
        except ValueError:
            return 0.0


def _check_numbers(args: MigrationControllerArgs, path: str) -> None:
    for name, value, least in (
        ("maxConcurrentReconciles", args.max_concurrent_reconciles, 1),
        ("evictBurst", args.evict_burst, 1),
        ("maxMigratingGlobally", args.max_migrating_globally, 0),
        ("maxMigratingPerNode", args.max_migrating_per_node, 0),
        ("maxMigratingPerNamespace", args.max_migrating_per_namespace, 0),
    ):
        if value is not None and value < least:
            raise ConfigurationError(f"{path}.{name}", value, f"must be {least} or more")
    if not 0 < args.evictions_per_second < float("inf"):
        raise ConfigurationError(f"{path}.evictQPS", args.evict_qps, "must be a number above 0")
    for name, duration in (("defaultJobTTL", args.default_job_ttl), ("coolDown", args.cool_down)):
        if duration < timedelta():
            raise ConfigurationError(f"{path}.{name}", format_duration(duration), "must not be negative")
    if args.arbitration_args.interval <= timedelta():
        interval = format_duration(args.arbitration_args.interval)
        raise ConfigurationError(f"{path}.arbitrationArgs.interval", interval, "must be above 0")


def _check_choices(args: MigrationControllerArgs, path: str) -> None:
    if args.default_job_mode not in _MODES:
        raise ConfigurationError(f"{path}.defaultJobMode", args.default_job_mode, f"one of {', '.join(_MODES)}")
    if args.gang_policy not in GANG_POLICIES:
        raise ConfigurationError(f"{path}.gangPolicy", args.gang_policy, f"one of {', '.join(GANG_POLICIES)}")
    if args.evict_disrupted_gangs and args.gang_policy != WHOLE:
        raise ConfigurationError(f"{path}.evictDisruptedGangs", True, f"needs gangPolicy {WHOLE}")
    if args.eviction_policy not in EVICTION_POLICIES:
        allowed = f"unsupported evicition policy; supported are {', '.join(EVICTION_POLICIES)}"
        raise ConfigurationError(f"{path}.evictionPolicy", args.eviction_policy, allowed)
    for index, gate in enumerate(args.skip_eviction_gates):
        if gate not in EVICTION_GATES:
            allowed = f"unknown eviction gate; supported are {', '.join(EVICTION_GATES)}"
            raise ConfigurationError(f"{path}.skipEvictionGates[{index}]", gate, allowed)


def _check_limits(args: MigrationControllerArgs, path: str) -> None:
    _check_amount(f"{path}.maxMigratingPerWorkload", args.max_migrating_per_workload)
    _check_amount(f"{path}.maxUnavailablePerWorkload", args.max_unavailable_per_workload)
    for key, limiter in args.object_limiters.items():
        where = f"{path}.objectLimiters[{key}]"
        if key not in LIMITED_OBJECTS:
            raise ConfigurationError(f"{path}.objectLimiters", key, f"one of {', '.join(LIMITED_OBJECTS)}")
        if limiter.duration < timedelta():
            raise ConfigurationError(f"{where}.duration", format_duration(limiter.duration), "must not be negative")
        if limiter.burst < 0:
            raise ConfigurationError(f"{where}.burst", limiter.burst, "must be 0 or more")
        _check_amount(f"{where}.maxMigrating", limiter.max_migrating)


def _check_amount(path: str, value: int | str | None) -> None:
    is_bad = value < 0 if isinstance(value, int) else value is not None and not _PERCENT.fullmatch(value)
    if is_bad:
        raise ConfigurationError(path, value, "a number of pods, 0 or more, or a percentage such as 10%")


def scaled(value: int | str, total: int) -> int:
    """A number of pods, or a percentage of ``total`` rounded down; 0 for a text that is neither."""
    if isinstance(value, int):
        return value
    percent = _PERCENT.fullmatch(value)
    return int(percent.group(1)) * total // 100 if percent else 0


def workload_limit(replicas: int, value: int | str | None) -> int:
    """How many pods of a workload may be away at once; without ``value``, 10 % of more than 10, 2 of 4 and more, 1."""
    if value is not None:
        limit = scaled(value, replicas) or 1
    elif replicas > 10:
        limit = replicas // 10
    else:
        limit = 2 if replicas >= 4 else 1
    return min(limit, replicas)
