"""CPU burst: latency-sensitive containers may exceed their CPU limit for a moment.

Two means. *Kernel burst* (``cpu.cfs_burst_us``) lets a container use what it has saved in earlier periods. *Quota
burst* raises the quota of a container that was throttled by a fifth a round and lowers it again, within a budget of
tokens that fills while the container is below its limit (pkg/koordlet/qosmanager/plugins/cpuburst).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple

from koordinator.api import annotations as annotation_keys
from koordinator.api import cpu_burst as policies
from koordinator.api.cpu_burst import CPUBurstConfig, CPUBurstStrategy
from koordinator.api.qos import QoSClass
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.hooks.cpu_normalization import normalized
from koordinator.koordlet.enforce.strategies.snapshot import (
    ContainerUsage,
    Decision,
    PodUsage,
    Snapshot,
    annotation_or_none,
    overlaid,
)
from koordinator.koordlet.pods.kubelet_bandwidths import Bandwidth
from koordinator.koordlet.pods.node_pod import NodePod, PodContainer
from koordinator.model.pod_grants import Grant, is_being_resized, requested_grant
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.kernel_files import CPU_BURST, CPU_QUOTA, Target, quota_of_milli

Uniform = Callable[[float, float], float]
"""A random number between two."""

OWNER: Final = "CPUBurst"
_WITH_KERNEL_BURST: Final = (policies.CPU_BURST_ONLY, policies.AUTO)
_WITH_QUOTA_BURST: Final = (policies.CFS_QUOTA_BURST_ONLY, policies.AUTO)
NOT_SHARING: Final = (QoSClass.LSE, QoSClass.LSR, QoSClass.BE)
"""All others run on the CPUs that are shared, with a claim to them."""
_UP: Final = 1.2
_DOWN: Final = 0.8
_COOLING: Final = 0.9
_UNBOUNDED: Final = 1 << 62
_FULL: Final = 100
_SAVING: Final = 60
"""Percent of the limit: above the first tokens are spent, below the second they are saved."""
_NOT_MEASURED: Final = ContainerUsage()


class NodeLoad(Enum):
    """How busy the CPUs are that latency-sensitive pods share."""

    IDLE = "idle"
    COOLING = "cooling"
    OVERLOAD = "overload"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a container may still burst, in percent of its limit times seconds, as of ``at`` (monotonic seconds)."""

    left: float
    capacity: float
    at: float


@dataclass(frozen=True, slots=True)
class RaisedQuota:
    """What was desired last, and what it was raised from: microseconds."""

    quota: int
    base: int

    def from_base(self, base: int) -> int:
        """As much more as before than a base that may have changed, with the limit or the worth of a CPU."""
        return self.quota if base == self.base else self.quota * base // self.base


@dataclass(frozen=True, slots=True)
class BurstState:
    """What has to be remembered from round to round, by the container's ID."""

    tokens: Mapping[str, Tokens] = field(default_factory=dict)
    quotas: Mapping[str, RaisedQuota] = field(default_factory=dict)


def decide(
    snapshot: Snapshot,
    bandwidths: Mapping[str, Mapping[str, Bandwidth]],
    shared_cpu: float | None,
    state: BurstState,
    now: float,
    uniform: Uniform,
    *,
    is_enabled: bool = True,
    normalization_ratio: float | None = None,
) -> tuple[Decision, BurstState]:
    """Bursts and quotas of all containers that may burst; the second is the state for the next round.

    ``bandwidths`` are what the kubelet gives each folder, by the UID of its pod: what a burst is added to.
    ``shared_cpu`` as ``node_load`` takes it, ``now`` in monotonic seconds. Where the gate is off nothing bursts: bursts
    are 0 and quotas the kubelet's. ``normalization_ratio`` divides quotas where CPUs are worth more than plain ones.
    """
    if snapshot.policy is None or snapshot.policy.cpu_burst_strategy is None:
        return Decision(None, "the node has no NodeSLO"), state
    strategy = snapshot.policy.cpu_burst_strategy
    load = node_load(snapshot, shared_cpu, strategy)
    settings: list[DesiredSetting] = []
    tokens: dict[str, Tokens] = {}
    quotas: dict[str, RaisedQuota] = {}
    for usage in snapshot.pods:
        if usage.pod.qos in NOT_SHARING:
            continue
        given = bandwidths.get(usage.pod.uid, {})
        bursting = usage.pod.derived(_bursting, given, strategy, is_enabled, normalization_ratio)
        if bursting is not None:
            settings += bursting.settings
            if bursting.raisable:
                raised, after = _raised(usage, bursting, load, state, now, uniform)
                settings += raised
                tokens |= after.tokens
                quotas |= after.quotas
    reason = "the gate CPUBurst is off" if not is_enabled else f"the node is {load.value}"
    return Decision(tuple(settings), reason), BurstState(tokens, quotas)


def node_load(snapshot: Snapshot, shared_cpu: float | None, strategy: CPUBurstStrategy) -> NodeLoad:
    """How the CPUs that are not given to LSE and LSR pods are used by what is neither theirs nor best-effort:
    ``shared_cpu``, the mean of the last seconds in cores."""
    if shared_cpu is None or not snapshot.cpus or strategy.share_pool_threshold_percent is None:
        return NodeLoad.UNKNOWN
    total = float(len(snapshot.cpus))
    for usage in snapshot.pods:
        if usage.pod.qos in (QoSClass.LSE, QoSClass.LSR):
            total -= usage.pod.requests.get("cpu", 0) / 1e9
    ratio, threshold = (shared_cpu / total if total > 0 else 1.0), strategy.share_pool_threshold_percent / 100
    if ratio >= threshold:
        return NodeLoad.OVERLOAD
    return NodeLoad.COOLING if ratio >= threshold * _COOLING else NodeLoad.IDLE


class _Limited(NamedTuple):
    """A container that runs, with what the kubelet gives it; ``base`` is the quota that a burst is added to."""

    container: PodContainer
    grant: Grant
    given: Bandwidth
    base: int


@dataclass(frozen=True, slots=True)
class _Bursting:
    """What follows from a pod, the policy and what the kubelet gives it: all but how far quotas are raised."""

    config: CPUBurstConfig
    priority: Priority
    settings: tuple[DesiredSetting, ...]
    raisable: tuple[_Limited, ...]
    """Those whose quotas may be raised."""
    base: int
    """Of the pod."""


def _bursting(
    pod: NodePod,
    bandwidths: Mapping[str, Bandwidth],
    strategy: CPUBurstStrategy,
    is_enabled: bool,
    normalization_ratio: float | None,
) -> _Bursting | None:
    """None for a pod that has CPUs of its own, or that has ended."""
    if pod.allocation.cpus or not pod.is_active:
        return None
    config, priority = (
        _config(pod, strategy) if is_enabled else (CPUBurstConfig(policy=policies.NONE), Priority.RELEASE)
    )
    ratio = None if pod.qos is QoSClass.SYSTEM else normalization_ratio
    given, grants = bandwidths.get(pod.cgroup, Bandwidth(NO_LIMIT)), pod.grant.containers
    limited = [
        _Limited(each, grants[each.name], bandwidths[each.cgroup], normalized(bandwidths[each.cgroup].quota, ratio))
        for each in pod.containers
        if each.cgroup in bandwidths and each.name in grants
    ]
    base, raisable = normalized(given.quota, ratio), tuple[_Limited, ...]()
    settings = _kernel_burst(pod, config, priority, given, base, limited) if limited else []
    if config.policy in _WITH_QUOTA_BURST:
        raisable = tuple(each for each in limited if each.base != NO_LIMIT and each.grant.cpu_limit is not None)
    else:
        reason, folders = f"policy {config.policy}", (*(each.container.cgroup for each in limited), pod.cgroup)
        settings += [
            DesiredSetting(OWNER, Target(CPU_QUOTA, folder), bandwidths[folder].quota, reason, Priority.RELEASE)
            for folder in folders
            if folder in bandwidths
        ]
    return _Bursting(config, priority, tuple(settings), raisable, base)


def _config(pod: NodePod, strategy: CPUBurstStrategy) -> tuple[CPUBurstConfig, Priority]:
    """The node's strategy with the fields of the pod's annotation before it; bad JSON changes nothing."""
    given = annotation_or_none(pod.pod.metadata.annotations, annotation_keys.CPU_BURST, CPUBurstConfig)
    return (strategy, Priority.POLICY) if given is None else (overlaid(strategy, given), Priority.POD)


def _kernel_burst(
    pod: NodePod, config: CPUBurstConfig, priority: Priority, given: Bandwidth, base: int, limited: Iterable[_Limited]
) -> list[DesiredSetting]:
    is_on = config.policy in _WITH_KERNEL_BURST
    percent = (config.cpu_burst_percent or 0) if is_on else 0
    # What the kubelet is about to write where the pod is being resized: no quota below the burst is taken.
    requested = requested_grant(pod.pod) if is_being_resized(pod.pod) else pod.grant
    bursts: dict[str, int] = {}
    for each in limited:
        # Kernels of kernel.org take no burst above the quota.
        wanted = math.trunc((each.grant.cpu_limit or 0) / 1000 * percent / 100 * each.given.period)
        highest = _highest(requested.containers.get(each.container.name), each.given)
        bursts[each.container.cgroup] = min(wanted, max(each.base, 0), highest)
    total = sum(bursts.values())
    bursts[pod.cgroup] = min(total if base == NO_LIMIT else min(total, base), _highest(requested.pod, given))
    priority = priority if is_on else Priority.RELEASE
    reason = f"policy {config.policy}: {percent} percent of the limit"
    return [DesiredSetting(OWNER, Target(CPU_BURST, each), burst, reason, priority) for each, burst in bursts.items()]


def _quota_settings(
    pod: NodePod, bursting: _Bursting, quotas: tuple[tuple[int, str], ...]
) -> tuple[DesiredSetting, ...]:
    """``quotas`` of those that may be raised, each with the reason."""
    settings = [
        DesiredSetting(OWNER, Target(CPU_QUOTA, each.container.cgroup), quota, reason, bursting.priority)
        for each, (quota, reason) in zip(bursting.raisable, quotas, strict=True)
    ]
    if bursting.base != NO_LIMIT:
        raised = sum(quota for quota, _ in quotas) - sum(each.base for each in bursting.raisable)
        reason, target = f"its containers have {raised} us more than their limits", Target(CPU_QUOTA, pod.cgroup)
        settings.append(DesiredSetting(OWNER, target, bursting.base + raised, reason, bursting.priority))
    return tuple(settings)


def _raised(
    usage: PodUsage, bursting: _Bursting, load: NodeLoad, state: BurstState, now: float, uniform: Uniform
) -> tuple[tuple[DesiredSetting, ...], BurstState]:
    """The quotas of a pod whose containers may have more than their limits."""
    config, found = bursting.config, list[tuple[int, str]]()
    seconds = config.cfs_quota_burst_period_seconds
    tokens: dict[str, Tokens] = {}
    quotas: dict[str, RaisedQuota] = {}
    for container, grant, _, base in bursting.raisable:
        measured, is_spent = usage.containers.get(container.id, _NOT_MEASURED), False
        if (seconds is None or seconds >= 0) and grant.cpu_limit is not None:
            spent = _spend(config, grant.cpu_limit, state.tokens.get(container.id), measured, now, uniform)
            tokens[container.id], is_spent = spent, spent.left <= 0
        known = state.quotas.get(container.id)
        current = known.from_base(base) if known else base
        quota, reason = _next_quota(config, base, current, measured, load, is_spent=is_spent)
        quotas[container.id] = RaisedQuota(quota, base)
        found.append((quota, reason))
    return usage.pod.derived(_quota_settings, bursting, tuple(found)), BurstState(tokens, quotas)


def _next_quota(
    config: CPUBurstConfig, base: int, current: int, usage: ContainerUsage, load: NodeLoad, *, is_spent: bool
) -> tuple[int, str]:
    percent = config.cfs_quota_burst_percent
    ceiling = max(math.trunc(base * percent / 100), base) if percent is not None else base
    if is_spent:
        factor, reason = _DOWN, "its tokens are spent"
    elif load is NodeLoad.OVERLOAD:
        factor, reason = _DOWN, "the node is overloaded"
    elif usage.throttled is not None and usage.throttled > 0 and load is NodeLoad.IDLE:
        factor, reason = _UP, "it was throttled"
    else:
        factor, reason = 1.0, "there is no reason to change it"
    return min(max(math.trunc(current * factor), base), ceiling), reason


def _spend(
    config: CPUBurstConfig, limit: int, before: Tokens | None, usage: ContainerUsage, now: float, uniform: Uniform
) -> Tokens:
    percent, period = config.cfs_quota_burst_percent or 0, config.cfs_quota_burst_period_seconds or 0
    capacity = float(period * max(percent - _FULL, 0))
    if before is None or before.capacity != capacity:
        return Tokens(math.trunc(capacity * uniform(0, 0.5)), capacity, now)
    # A clock that was set back takes nothing away and gives nothing.
    seconds = max(now - before.at, 0.0)
    used = 100 if usage.cpu is None else math.trunc(usage.cpu * 1000 / limit * 100)
    change = (_FULL - used) * seconds if used >= _FULL or used < _SAVING else 0.0
    return replace(before, left=max(min(before.left + change, capacity), -capacity), at=now)


def _highest(grant: Grant | None, given: Bandwidth) -> int:
    """The highest burst that lets the kubelet write the quota of the grant."""
    if grant is None or not grant.cpu_limit:
        return _UNBOUNDED
    return quota_of_milli(grant.cpu_limit, given.period)
