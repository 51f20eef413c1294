"""Random small clusters for the tests of the usage model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from koordinator.cluster.nodes.usage import NodeColumns, PodColumns, Tier, identity

GIBI = 1024.0**3


@dataclass(frozen=True)
class Workload:
    """One pod of a test."""

    tier: Tier = Tier.LATENCY_SENSITIVE
    cpu: float = 2.0
    cpu_limit: float = math.inf
    memory: float = 4 * GIBI
    memory_limit: float = math.inf
    node: int = 0
    started: float = -1e6
    uid: str = ""
    best_effort: bool = False


def pod_columns(pods: Sequence[Workload]) -> PodColumns:
    """Pods without a uid are told apart by their position."""
    return PodColumns(
        ids=np.array([identity(pod.uid or f"pod-{index}") for index, pod in enumerate(pods)], dtype=np.uint64),
        node=np.array([pod.node for pod in pods], dtype=np.int64),
        tier=np.array([pod.tier for pod in pods], dtype=np.int8),
        cpu_request=np.array([pod.cpu for pod in pods], dtype=np.float64),
        cpu_limit=np.array([pod.cpu_limit for pod in pods], dtype=np.float64),
        memory_request=np.array([pod.memory for pod in pods], dtype=np.float64),
        memory_limit=np.array([pod.memory_limit for pod in pods], dtype=np.float64),
        started=np.array([pod.started for pod in pods], dtype=np.float64),
        best_effort=np.array([pod.best_effort for pod in pods], dtype=np.bool_),
    )


def node_columns(count: int, cpu: float = 16.0, memory: float = 64 * GIBI) -> NodeColumns:
    ids = np.array([identity(f"node-{index}") for index in range(count)], dtype=np.uint64)
    return NodeColumns(ids, np.full(count, cpu), np.full(count, memory))


@st.composite
def workloads(draw: st.DrawFn, nodes: int = 3) -> list[Workload]:
    """Up to 20 pods over ``nodes`` nodes, from idle to far more than a node has."""
    pods = []
    for _ in range(draw(st.integers(0, 20))):
        cpu = draw(st.sampled_from([0.0, 0.1, 1.0, 4.0, 16.0]))
        memory = draw(st.sampled_from([0.0, 0.5, 4.0, 40.0])) * GIBI
        pods.append(
            Workload(
                tier=draw(st.sampled_from(Tier)),
                cpu=cpu,
                cpu_limit=draw(st.sampled_from([math.inf, max(cpu, 0.05), 2 * cpu + 0.1])),
                memory=memory,
                memory_limit=draw(st.sampled_from([math.inf, memory + GIBI / 4])),
                node=draw(st.integers(0, nodes - 1)),
                started=draw(st.floats(0, 200_000)),
            )
        )
    return pods
