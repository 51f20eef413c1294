"""The simulated nodes and the pods that run on them, as columns kept current by events, with their recent samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from koordinator.api.qos import QoSClass
from koordinator.cluster.nodes.node_objects import SimulatedNode
from koordinator.cluster.nodes.scenario import UsageModel
from koordinator.cluster.nodes.suppression import (
    HeldDown,
    SuppressedColumns,
    Thresholds,
    others_of,
    suppressed,
    system_of,
)
from koordinator.cluster.nodes.usage import Floats, NodeColumns, PodColumns, PodProfile, Tier, Usage, identity, usage_at

# Recent samples of many series on one time axis: a ring of rows x moments, bounded by construction.
#
# All series are sampled at the same moments, so that a window is one slice and its statistics one vector operation over
# all nodes that report together.


Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Window:
    """The samples of some rows: ``times[k]`` and, for CPU (cores) and memory (bytes), ``[k, row]``; absent is NaN."""

    times: Floats
    cpu: Floats
    memory: Floats

    def counts(self) -> NDArray[np.int64]:
        """How many samples each row has."""
        counts: NDArray[np.int64] = np.count_nonzero(~np.isnan(self.cpu), axis=0)
        return counts

    def averages(self) -> tuple[Floats, Floats]:
        """The arithmetic mean of each row; NaN for a row without samples."""
        counts = self.counts()
        present = np.where(counts > 0, counts, np.nan)
        return np.nansum(self.cpu, axis=0) / present, np.nansum(self.memory, axis=0) / present

    def percentiles(self, percent: int) -> tuple[Floats, Floats]:
        """The element at rank ⌊n·p⌋ (counted from 1, at least 1) of each row's sorted samples; no interpolation."""
        return _percentile(self.cpu, self.counts(), percent), _percentile(self.memory, self.counts(), percent)

    def spans(self) -> Floats:
        """Seconds from the first to the last sample of each row; NaN for a row without samples."""
        present = ~np.isnan(self.cpu)
        if not len(self.times):
            return np.full(self.cpu.shape[1], np.nan)
        first = self.times[present.argmax(axis=0)]
        last = self.times[len(self.times) - 1 - present[::-1].argmax(axis=0)]
        return np.where(present.any(axis=0), last - first, np.nan)


def _percentile(values: Floats, counts: NDArray[np.int64], percent: int) -> Floats:
    if not len(values):
        return np.full(values.shape[1], np.nan)
    ranks = np.maximum(counts * percent // 100 - 1, 0)
    # NaN sorts last, so that the first ``counts`` elements of a column are its samples.
    chosen: Floats = np.take_along_axis(np.sort(values, axis=0), ranks[np.newaxis, :], axis=0)[0]
    return chosen


class SampleRing:
    """The last ``slots`` samples of a growing set of rows."""

    def __init__(self, slots: int, rows: int = 64) -> None:
        self._slots = slots
        self._head = 0
        self._filled = 0
        self._times = np.full(slots, np.nan)
        self._cpu = np.full((slots, rows), np.nan)
        self._memory = np.full((slots, rows), np.nan)

    def append(self, time: float, rows: Rows, cpu: Floats, memory: Floats) -> None:
        """Add a sample of ``rows``; every other row has none at this moment. ``time`` never goes back."""
        if len(rows):
            self._grow(int(rows.max()) + 1)
        slot = self._head
        self._times[slot] = time
        self._cpu[slot] = np.nan
        self._memory[slot] = np.nan
        self._cpu[slot, rows] = cpu
        self._memory[slot, rows] = memory
        self._head = (slot + 1) % self._slots
        self._filled = min(self._filled + 1, self._slots)

    def forget(self, row: int) -> None:
        """Drop a row's samples, so that its place can be given to another series."""
        if row < self._cpu.shape[1]:
            self._cpu[:, row] = np.nan
            self._memory[:, row] = np.nan

    def window(self, rows: Rows, start: float, end: float) -> Window:
        """The samples from ``start`` to ``end``, both included, oldest first."""
        if len(rows):
            self._grow(int(rows.max()) + 1)
        order = (self._head - self._filled + np.arange(self._filled)) % self._slots
        times = self._times[order]
        chosen = order[(times >= start) & (times <= end)]
        grid = np.ix_(chosen, rows)
        return Window(self._times[chosen], self._cpu[grid], self._memory[grid])

    def _grow(self, rows: int) -> None:
        have = self._cpu.shape[1]
        if rows <= have:
            return
        more = np.full((self._slots, max(rows, 2 * have) - have), np.nan)
        self._cpu = np.hstack([self._cpu, more])
        self._memory = np.hstack([self._memory, more])


NODE_RETENTION: Final = 1800.0
"""Seconds of node samples that are kept: the longest window of the default NodeMetric policy."""
POD_RETENTION: Final = 600.0


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """What a node and the pods on it use. CPU in cores, memory in bytes; ``batch`` is all that is not a service."""

    time: float
    """Simulated seconds since the epoch."""
    cpu_capacity: float
    memory_capacity: float
    cpu: float
    memory: float
    system_cpu: float
    system_memory: float
    latency_sensitive_cpu: float
    latency_sensitive_memory: float
    batch_cpu: float
    batch_memory: float


@dataclass(frozen=True, slots=True)
class NodeReadings:
    """What runs on one node at a moment: cores and bytes of the system, and of each running pod by its uid."""

    system_cpu: float
    system_memory: float
    pods: dict[str, tuple[float, float]]


class _Columns:
    """Growing parallel arrays; the row of something that has left is given to the next."""

    def __init__(self, **dtypes: type[np.generic]) -> None:
        self._arrays: dict[str, NDArray[Any]] = {name: np.zeros(64, dtype) for name, dtype in dtypes.items()}
        self._free: list[int] = []
        self._used = 0

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def add(self, **values: object) -> int:
        row = self._free.pop() if self._free else self._used
        self._used = max(self._used, row + 1)
        for name, array in self._arrays.items():
            if row == len(array):
                self._arrays[name] = array = np.concatenate([array, np.zeros_like(array)])
            array[row] = values[name]
        return row

    def free(self, row: int) -> None:
        self._free.append(row)


class Population:
    """Who is there and what they use. Times are simulated seconds."""

    def __init__(
        self, model: UsageModel, seed: int, sample_interval: float, thresholds: Thresholds | None = None
    ) -> None:
        """``thresholds`` are those of the nodes that hold best-effort pods down."""
        self._model = model
        self._seed = seed
        self._thresholds = Thresholds() if thresholds is None else thresholds
        self._held: dict[str, HeldDown] = {}
        self._nodes: dict[str, tuple[int, SimulatedNode]] = {}
        self._node_columns = _Columns(ids=np.uint64, cpu=np.float64, memory=np.float64)
        self._pods: dict[str, tuple[int, PodProfile]] = {}
        self._pods_of: dict[str, set[str]] = {}
        self._node_of: dict[str, str] = {}
        self._pod_columns = _Columns(
            ids=np.uint64, node=np.int64, tier=np.int8, started=np.float64, running=np.bool_,
            cpu_request=np.float64, cpu_limit=np.float64, memory_request=np.float64, memory_limit=np.float64,
            best_effort=np.bool_,
        )  # fmt: skip
        node_slots = int(NODE_RETENTION / sample_interval) + 2
        self.node_samples = SampleRing(node_slots)
        self.system_samples = SampleRing(node_slots)
        self.pod_samples = SampleRing(int(POD_RETENTION / sample_interval) + 2)
        self._last: tuple[float, PodColumns, Usage] | None = None
        self.sampled_at: float | None = None
        """When the latest sample was taken; None before the first."""

    @property
    def nodes(self) -> Sequence[str]:
        return list(self._nodes)

    @property
    def running_pods(self) -> int:
        return int(np.count_nonzero(self._running_rows()))

    def node_row(self, name: str) -> int:
        return self._nodes[name][0]

    def node(self, name: str) -> SimulatedNode:
        return self._nodes[name][1]

    def has_node(self, name: str) -> bool:
        return name in self._nodes

    def pods_of(self, node: str) -> list[tuple[int, PodProfile]]:
        """(row, profile) of the pods on a node that run or have just run, by namespace and name."""
        pods = [self._pods[uid] for uid in self._pods_of[node]]
        return sorted(pods, key=lambda pod: (pod[1].namespace, pod[1].name))

    def add_node(self, node: SimulatedNode) -> None:
        row = self._node_columns.add(ids=np.uint64(identity(node.name)), cpu=node.cpu, memory=node.memory)
        self._nodes[node.name] = (row, node)
        self._pods_of[node.name] = set()
        self._last = None

    def remove_node(self, name: str) -> None:
        """Forget the node and every pod on it."""
        for uid in list(self._pods_of[name]):
            self.remove_pod(uid)
        row, _ = self._nodes.pop(name)
        del self._pods_of[name]
        self.node_samples.forget(row)
        self.system_samples.forget(row)
        self._node_columns.free(row)
        self._last = None

    def start_pod(self, node: str, profile: PodProfile, started: float) -> None:
        """The pod runs on ``node`` since ``started``; it may be known already."""
        if profile.uid in self._pods:
            return
        row = self._pod_columns.add(
            ids=np.uint64(profile.id), node=self.node_row(node), tier=profile.tier, started=started, running=True,
            cpu_request=profile.cpu_request, cpu_limit=profile.cpu_limit,
            memory_request=profile.memory_request, memory_limit=profile.memory_limit,
            best_effort=profile.qos is QoSClass.BE,
        )  # fmt: skip
        self._pods[profile.uid] = (row, profile)
        self._pods_of[node].add(profile.uid)
        self._node_of[profile.uid] = node

    def finish_pod(self, uid: str) -> None:
        """The pod has ended; what it used stays in the reports until it leaves their window."""
        if uid in self._pods:
            self._pod_columns["running"][self._pods[uid][0]] = False

    def remove_pod(self, uid: str) -> None:
        """The pod is gone."""
        if uid not in self._pods:
            return
        row, _ = self._pods.pop(uid)
        self._pods_of[self._node_of.pop(uid)].discard(uid)
        self._pod_columns["running"][row] = False
        self.pod_samples.forget(row)
        self._pod_columns.free(row)

    def sample(self, time: float) -> None:
        """Work out usage at ``time`` and keep it."""
        rows = np.flatnonzero(self._running_rows())
        pods = self._columns_of(rows)
        usage = usage_at(time, pods, self._node_view(), self._model, self._seed)
        self._held = {}
        if self._thresholds:
            usage = self._suppressed(pods, usage)
        cpu, memory = usage.node_totals(pods)
        live = np.array([row for row, _ in self._nodes.values()], dtype=np.int64)
        self.node_samples.append(time, live, cpu[live], memory[live])
        self.system_samples.append(time, live, usage.system_cpu[live], usage.system_memory[live])
        self.pod_samples.append(time, rows, usage.pod_cpu, usage.pod_memory)
        self._last = (time, pods, usage)
        self.sampled_at = time

    def _suppressed(self, pods: PodColumns, usage: Usage) -> Usage:
        nodes = self._node_view()
        known = {name: found for name in self._nodes if (found := self._thresholds.get(name)) is not None}
        columns = SuppressedColumns(*(np.full(len(nodes.cpu), fill) for fill in (np.nan, 0.0, 0.0)))
        for name, threshold in known.items():
            row, node = self._nodes[name]
            columns.share[row] = threshold.percent / 100
            columns.least[row] = (threshold.least_percent or 0) / 100
            columns.reserved[row] = node.group.reserved.cpu.milli / 1000
        left, limit, held = suppressed(usage, pods, nodes, columns)
        others, system = others_of(usage, pods, len(nodes.cpu)), system_of(usage, columns)
        for name, threshold in known.items():
            row, node = self._nodes[name]
            if held[row]:
                self._held[name] = HeldDown(
                    threshold, float(limit[row]), node.cpu, float(others[row]), float(system[row])
                )
        return left

    def held_down(self, node: str) -> HeldDown | None:
        """What best-effort pods had of it at the last sample, if they would have used more."""
        return self._held.get(node)

    def usage_of(self, node: str, time: float) -> NodeUsage:
        """The latest sample of a node; one is worked out for ``time`` when there is none. KeyError: no such node."""
        row, simulated = self._nodes[node]
        if self._last is None:
            rows = np.flatnonzero(self._running_rows())
            pods = self._columns_of(rows)
            self._last = (time, pods, usage_at(time, pods, self._node_view(), self._model, self._seed))
        at, pods, usage = self._last
        here = pods.node == row
        service = here & (pods.tier == Tier.LATENCY_SENSITIVE)
        service_cpu, service_memory = _sum(usage.pod_cpu, service), _sum(usage.pod_memory, service)
        batch_cpu = _sum(usage.pod_cpu, here & ~service)
        batch_memory = _sum(usage.pod_memory, here & ~service)
        system_cpu, system_memory = float(usage.system_cpu[row]), float(usage.system_memory[row])
        return NodeUsage(
            time=at,
            cpu_capacity=simulated.cpu,
            memory_capacity=simulated.memory,
            cpu=system_cpu + service_cpu + batch_cpu,
            memory=system_memory + service_memory + batch_memory,
            system_cpu=system_cpu,
            system_memory=system_memory,
            latency_sensitive_cpu=service_cpu,
            latency_sensitive_memory=service_memory,
            batch_cpu=batch_cpu,
            batch_memory=batch_memory,
        )

    def readings_of(self, node: str, time: float) -> NodeReadings:
        """What one node uses at ``time``, worked out for it alone. KeyError: no such node."""
        row, _ = self._nodes[node]
        running = self._running_rows()
        pods = [(uid, self._pods[uid][0]) for uid in self._pods_of[node] if running[self._pods[uid][0]]]
        columns = self._columns_of(np.array([pod for _, pod in pods], dtype=np.int64))
        columns = replace(columns, node=np.zeros(len(pods), dtype=np.int64))
        view = self._node_view()
        alone = NodeColumns(view.ids[row : row + 1], view.cpu[row : row + 1], view.memory[row : row + 1])
        usage = usage_at(time, columns, alone, self._model, self._seed)
        started = zip(pods, usage.pod_cpu.tolist(), usage.pod_memory.tolist(), strict=True)
        return NodeReadings(
            system_cpu=float(usage.system_cpu[0]),
            system_memory=float(usage.system_memory[0]),
            pods={uid: (cpu, memory) for (uid, _), cpu, memory in started if not math.isnan(cpu)},
        )

    def _running_rows(self) -> NDArray[Any]:
        return self._pod_columns["running"]

    def _columns_of(self, rows: Rows) -> PodColumns:
        column = self._pod_columns
        return PodColumns(
            ids=column["ids"][rows],
            node=column["node"][rows],
            tier=column["tier"][rows],
            cpu_request=column["cpu_request"][rows],
            cpu_limit=column["cpu_limit"][rows],
            memory_request=column["memory_request"][rows],
            memory_limit=column["memory_limit"][rows],
            started=column["started"][rows],
            best_effort=column["best_effort"][rows],
        )

    def _node_view(self) -> NodeColumns:
        column = self._node_columns
        return NodeColumns(column["ids"], column["cpu"], column["memory"])


def _sum(values: Floats, chosen: NDArray[np.bool_]) -> float:
    return float(np.nansum(values[chosen]))
