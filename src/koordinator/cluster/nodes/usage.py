"""How much CPU and memory pods and nodes use at a moment: a pure function of seed, identities and simulated time.

Latency-sensitive pods follow the time of day; batch pods take what they can; a node's system and its latency-sensitive
pods are served first, and what is left is shared by the rest in proportion to what they want. Nothing exceeds the
node's capacity.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from koordinator.api.pod import Container, Pod, ResourceRequirements
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.qos import QoSClass, qos_class_with_default
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import CPU, EXTENDED_CPUS, EXTENDED_MEMORIES, MEMORY, with_current_names
from koordinator.cluster.nodes.scenario import UsageModel

# Randomness without state: a hash of (seed, identity, purpose, time bucket), over whole columns at once.
#
# A generator would make a pod's load depend on how often and in which order it was called; a hash makes it depend on
# its arguments, so that a restart, another sampling interval or another set of neighbours changes nothing.


Floats = NDArray[np.float64]
Ids = NDArray[np.uint64]

_GOLDEN: Final = 0x9E3779B97F4A7C15
_MASK: Final = 2**64 - 1


class Purpose(IntEnum):
    """What a draw is for; draws for different purposes are independent."""

    CPU_LEVEL = 1
    CPU_NOISE = 2
    PEAK_HOUR = 3
    SPIKE = 4
    SPIKE_START = 5
    SPIKE_FACTOR = 6
    SPIKE_DURATION = 7
    MEMORY_LEVEL = 8
    MEMORY_NOISE = 9
    MEMORY_RAMP = 10
    RUN_TIME = 11
    START_LATENCY = 12
    STOP_LATENCY = 13


def identity(text: str) -> int:
    """64 bits that stand for a pod's uid or a node's name."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def uniform(seed: int, ids: Ids, purpose: Purpose, bucket: int = 0) -> Floats:
    """One number in [0, 1) for each id."""
    salt = _mix_int(_mix_int(seed & _MASK) ^ (purpose * _GOLDEN & _MASK) ^ _mix_int(bucket & _MASK))
    mixed = _mix(ids ^ np.uint64(salt))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def between(seed: int, ids: Ids, purpose: Purpose, bounds: tuple[float, float], bucket: int = 0) -> Floats:
    """One number in [low, high) for each id."""
    low, high = bounds
    return low + (high - low) * uniform(seed, ids, purpose, bucket)


def one_between(seed: int, id_: int, purpose: Purpose, bounds: tuple[float, float]) -> float:
    """``between`` for a single id."""
    return float(between(seed, np.array([id_], dtype=np.uint64), purpose, bounds)[0])


def smooth(seed: int, ids: Ids, purpose: Purpose, time: float, period: float) -> Floats:
    """A curve in [-1, 1) for each id that wanders with time: random knots every ``period`` seconds, eased between."""
    bucket, rest = divmod(time, period)
    share = rest / period
    weight = share * share * (3 - 2 * share)
    before = uniform(seed, ids, purpose, int(bucket))
    after = uniform(seed, ids, purpose, int(bucket) + 1)
    return 2 * (before + (after - before) * weight) - 1


def _mix(values: Ids) -> Ids:
    """The finalizer of splitmix64 (Steele, Lea, Flood 2014); unsigned arrays wrap around without a warning."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _mix_int(value: int) -> int:
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


_DAY: Final = 86_400.0
_HOUR: Final = 3_600.0
_NOISE_PERIOD: Final = 90.0
_START_RAMP: Final = 30.0
"""Seconds until a pod that has just started does its full work."""
_MEBI: Final = 1024.0 * 1024.0
_DEFAULT_MEMORY: Final = 64 * _MEBI
"""The memory demand of a pod that requests CPU only."""
_LIMIT_MARGIN: Final = 0.95
"""Memory stays below this share of the limit: at the limit the kernel would kill the pod."""
_FIRST_MEMORY: Final = 0.1
"""The share of its plateau that a pod has when it starts."""


class Tier(IntEnum):
    """How a pod behaves."""

    LATENCY_SENSITIVE = 0
    BATCH = 1
    BEST_EFFORT = 2


@dataclass(frozen=True, slots=True)
class PodColumns:
    """Running pods, one an element. CPU in cores, memory in bytes, times in simulated seconds; no limit is infinity."""

    ids: Ids
    node: NDArray[np.int64]
    """Index into the node columns."""
    tier: NDArray[np.int8]
    cpu_request: Floats
    cpu_limit: Floats
    memory_request: Floats
    memory_limit: Floats
    started: Floats
    best_effort: NDArray[np.bool_]
    """Which are of the QoS class BE."""


@dataclass(frozen=True, slots=True)
class NodeColumns:
    """Nodes, one an element."""

    ids: Ids
    cpu: Floats
    memory: Floats


@dataclass(frozen=True, slots=True)
class Usage:
    """What is used at one moment. A pod that has not started yet has NaN."""

    pod_cpu: Floats
    pod_memory: Floats
    system_cpu: Floats
    system_memory: Floats

    def node_totals(self, pods: PodColumns) -> tuple[Floats, Floats]:
        """CPU and memory of each node: its pods and its system."""
        count = len(self.system_cpu)
        cpu, memory = (per_node(used, pods, count) for used in (self.pod_cpu, self.pod_memory))
        return self.system_cpu + cpu, self.system_memory + memory


def usage_at(time: float, pods: PodColumns, nodes: NodeColumns, model: UsageModel, seed: int) -> Usage:
    """Usage at ``time`` (simulated seconds since the epoch, UTC)."""
    system_cpu, system_memory = _system(time, nodes, model, seed)
    started = pods.started <= time
    cpu = np.where(started, _wanted_cpu(time, pods, model, seed), 0.0)
    memory = np.where(started, _wanted_memory(time, pods, model, seed), 0.0)
    batch_limit = nodes.cpu * (model.batch.node_limit_percent / 100)
    cpu = _share(cpu, pods, nodes.cpu - system_cpu, batch_limit - system_cpu)
    free = nodes.memory - system_memory
    memory = _share(memory, pods, free, free)
    return Usage(
        pod_cpu=np.where(started, cpu, np.nan),
        pod_memory=np.where(started, memory, np.nan),
        system_cpu=system_cpu,
        system_memory=system_memory,
    )


def _system(time: float, nodes: NodeColumns, model: UsageModel, seed: int) -> tuple[Floats, Floats]:
    system = model.system
    cpu = system.cpu_milli / 1000 + nodes.cpu * (system.cpu_percent / 100)
    memory = system.memory_mebibytes * _MEBI + nodes.memory * (system.memory_percent / 100)
    swing = system.noise_percent / 100
    cpu = cpu * np.maximum(0.0, 1 + swing * smooth(seed, nodes.ids, Purpose.CPU_NOISE, time, _NOISE_PERIOD))
    memory = memory * np.maximum(0.0, 1 + swing / 5 * smooth(seed, nodes.ids, Purpose.MEMORY_NOISE, time, _HOUR))
    return np.minimum(cpu, nodes.cpu), np.minimum(memory, nodes.memory)


def _wanted_cpu(time: float, pods: PodColumns, model: UsageModel, seed: int) -> Floats:
    """What each pod would use were it alone on an endless node."""
    cap = np.where(np.isfinite(pods.cpu_limit), pods.cpu_limit, pods.cpu_request)
    noise = smooth(seed, pods.ids, Purpose.CPU_NOISE, time, _NOISE_PERIOD)
    service = pods.cpu_request * _service_level(time, pods.ids, noise, model, seed)
    batch_level = between(seed, pods.ids, Purpose.CPU_LEVEL, model.batch.cpu_percent) / 100
    batch = cap * batch_level * np.maximum(0.0, 1 + model.batch.noise_percent / 100 * noise)
    idle = between(seed, pods.ids, Purpose.CPU_LEVEL, model.best_effort.cpu_milli) / 1000 * (1 + 0.2 * noise)
    # A tier without a CPU request (memory alone was requested) idles like a pod that requests nothing.
    wanted = np.select(
        [(pods.tier == Tier.LATENCY_SENSITIVE) & (pods.cpu_request > 0), (pods.tier == Tier.BATCH) & (cap > 0)],
        [service, batch],
        idle,
    )
    return np.minimum(wanted * _ramp(time, pods.started, _START_RAMP), pods.cpu_limit)


def _service_level(time: float, ids: Ids, noise: Floats, model: UsageModel, seed: int) -> Floats:
    """The share of its request that a service uses: its mean, the daily wave, noise and spikes."""
    service = model.latency_sensitive
    mean = between(seed, ids, Purpose.CPU_LEVEL, service.mean_percent) / 100
    peak = between(seed, ids, Purpose.PEAK_HOUR, service.peak_hour) * _HOUR
    wave = 1 + service.daily_amplitude_percent / 100 * np.cos(2 * np.pi * (time - peak) / _DAY)
    level = mean * np.maximum(0.0, wave) * np.maximum(0.0, 1 + service.noise_percent / 100 * noise)
    return level * _spike(time, ids, model, seed)


def _spike(time: float, ids: Ids, model: UsageModel, seed: int) -> Floats:
    """The factor of the spike that a pod is in, or 1. In each hour a pod has at most one."""
    service = model.latency_sensitive
    hour, second = divmod(time, _HOUR)
    bucket = int(hour)
    shortest, longest = (duration.total_seconds() for duration in service.spike_duration)
    length = np.minimum(between(seed, ids, Purpose.SPIKE_DURATION, (shortest, longest), bucket), _HOUR)
    start = uniform(seed, ids, Purpose.SPIKE_START, bucket) * (_HOUR - length)
    happens = uniform(seed, ids, Purpose.SPIKE, bucket) < service.spikes_per_day / 24
    inside = happens & (start <= second) & (second < start + length)
    return np.where(inside, between(seed, ids, Purpose.SPIKE_FACTOR, service.spike_factor, bucket), 1.0)


def _wanted_memory(time: float, pods: PodColumns, model: UsageModel, seed: int) -> Floats:
    cap = np.where(np.isfinite(pods.memory_limit), pods.memory_limit, pods.memory_request)
    service = _or_default(pods.memory_request, cap) * (
        between(seed, pods.ids, Purpose.MEMORY_LEVEL, model.latency_sensitive.memory_percent) / 100
    )
    batch = _or_default(cap, cap) * between(seed, pods.ids, Purpose.MEMORY_LEVEL, model.batch.memory_percent) / 100
    idle = between(seed, pods.ids, Purpose.MEMORY_LEVEL, model.best_effort.memory_mebibytes) * _MEBI
    shortest, longest = (duration.total_seconds() for duration in model.batch.memory_ramp)
    growth = between(seed, pods.ids, Purpose.MEMORY_RAMP, (shortest, longest))
    is_service, is_batch = pods.tier == Tier.LATENCY_SENSITIVE, pods.tier == Tier.BATCH
    plateau = np.select([is_service, is_batch], [service, batch], idle)
    ramp = _ramp(time, pods.started, np.where(is_batch, growth, _START_RAMP))
    breathing = 1 + 0.03 * smooth(seed, pods.ids, Purpose.MEMORY_NOISE, time, 10 * _NOISE_PERIOD)
    wanted = plateau * (_FIRST_MEMORY + (1 - _FIRST_MEMORY) * ramp) * breathing
    return np.minimum(wanted, pods.memory_limit * _LIMIT_MARGIN)


def _or_default(requested: Floats, cap: Floats) -> Floats:
    return np.where(requested > 0, requested, np.where(cap > 0, cap, _DEFAULT_MEMORY))


def _ramp(time: float, started: Floats, seconds: Floats | float) -> Floats:
    """From 0 at the start to 1 after ``seconds``."""
    return np.clip((time - started) / np.maximum(seconds, 1e-9), 0.0, 1.0)


def _share(wanted: Floats, pods: PodColumns, free: Floats, batch_free: Floats) -> Floats:
    """Serve latency-sensitive pods from ``free``, then all others from what of ``batch_free`` is left (per node)."""
    first = np.where(pods.tier == Tier.LATENCY_SENSITIVE, wanted, 0.0)
    rest = wanted - first
    sums = per_node(first, pods, len(free))
    left = batch_free - np.minimum(sums, free)
    first_scale, rest_scale = _scale(sums, free), _scale(per_node(rest, pods, len(free)), left)
    shared: Floats = first * first_scale[pods.node] + rest * rest_scale[pods.node]
    return shared


def per_node(values: Floats, pods: PodColumns, nodes: int) -> Floats:
    """The sum over each node's pods; NaN counts as nothing."""
    return np.bincount(pods.node, np.nan_to_num(values), nodes).astype(np.float64)


def _scale(wanted: Floats, free: Floats) -> Floats:
    """The share of the demand that fits into ``free``; never above 1."""
    return np.clip(free / np.maximum(wanted, 1e-12), 0.0, 1.0)


# What the usage model needs to know of a pod: how it behaves and what it requests.


_MEMORIES: Final = (MEMORY, *EXTENDED_MEMORIES)


@dataclass(frozen=True, slots=True)
class PodProfile:
    """CPU in cores, memory in bytes; no limit is infinity."""

    uid: str
    id: int
    namespace: str
    name: str
    priority: PriorityClass
    qos: QoSClass
    tier: Tier
    cpu_request: float
    cpu_limit: float
    memory_request: float
    memory_limit: float


def profile_of(pod: Pod) -> PodProfile:
    """Native resources and those of the classes count alike: the one that a pod requests is what its processes use."""
    priority = priority_class_with_default(pod)
    holders = _holders(pod)
    requests = [_amounts(holder.requests or holder.limits) for holder in holders]
    limits = [_amounts(holder.limits) for holder in holders]
    cpu_request, memory_request = _total(requests, 0, 0.0), _total(requests, 1, 0.0)
    return PodProfile(
        uid=pod.metadata.uid,
        id=identity(pod.metadata.uid),
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        priority=priority,
        qos=qos_class_with_default(pod),
        tier=_behaviour(pod) or _tier(priority, requests=cpu_request > 0 or memory_request > 0),
        cpu_request=cpu_request,
        cpu_limit=_total(limits, 0, math.inf),
        memory_request=memory_request,
        memory_limit=_total(limits, 1, math.inf),
    )


BEHAVIOUR_ANNOTATION: Final = "simulation.koordinator.sh/behaves-as"
"""Of a pod: how it uses CPU and memory, whatever its priority says."""
BEHAVIOURS: Final = {"service": Tier.LATENCY_SENSITIVE, "batch": Tier.BATCH, "idle": Tier.BEST_EFFORT}


def _behaviour(pod: Pod) -> Tier | None:
    """As the annotation says it; None where it says nothing that is known."""
    return BEHAVIOURS.get(pod.metadata.annotations.get(BEHAVIOUR_ANNOTATION, ""))


def _tier(priority: PriorityClass, *, requests: bool) -> Tier:
    if not requests:
        return Tier.BEST_EFFORT
    if priority in (PriorityClass.PROD, PriorityClass.NONE):
        return Tier.LATENCY_SENSITIVE
    return Tier.BATCH


def _holders(pod: Pod) -> list[ResourceRequirements]:
    whole = pod.spec.resources
    if whole is not None and (whole.requests or whole.limits):
        return [whole]
    return [container.resources for container in running_containers(pod)]


def running_containers(pod: Pod) -> list[Container]:
    """The containers of a pod that has initialised: its own and its sidecars."""
    sidecars = [container for container in pod.spec.init_containers if container.restart_policy == "Always"]
    return [*pod.spec.containers, *sidecars]


def _amounts(resources: Mapping[str, Quantity]) -> tuple[float | None, float | None]:
    """CPU and memory; None where nothing is said."""
    resources = with_current_names(resources)
    cores = [resources[CPU].milli / 1000] if CPU in resources else []
    cores += [resources[name].value / 1000 for name in EXTENDED_CPUS if name in resources]
    memory = [float(resources[name].value) for name in _MEMORIES if name in resources]
    return (sum(cores) if cores else None, sum(memory) if memory else None)


def _total(parts: list[tuple[float | None, float | None]], which: int, absent: float) -> float:
    """The sum over containers, each that says nothing counting as ``absent``."""
    amounts = [part[which] for part in parts]
    return sum(absent if amount is None else amount for amount in amounts) if amounts else absent
