"""What the detection goes by: one reading of each pod, every ten seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from koordinator.api.qos import QoSClass

LATENCY_SENSITIVE: Final = frozenset({QoSClass.LSE, QoSClass.LSR, QoSClass.LS})


class Indicator(StrEnum):
    """How a pod may suffer. The values are those of events, metrics and the NodeMetric."""

    CYCLES = "cpi"
    """Cycles per instruction: caches and memory bandwidth, which others take."""
    CPU = "cpu-pressure"
    """The percentage of the time in which some task waited for a CPU."""
    CPU_WAIT = "cpu-wait"
    """The percentage of the time in which the pod's threads waited for a CPU, of that in which they wanted one: where
    the kernel has no pressure of its cgroup."""
    MEMORY = "memory-pressure"
    """The same for memory, which has to be reclaimed first."""
    IO = "io-pressure"
    """The same for block I/O."""


@dataclass(frozen=True, slots=True)
class PodReading:
    """One pod at one time. None is what was not measured."""

    uid: str
    name: str
    """Namespace and name."""
    workload: str
    """Pods of one workload share what is normal for them."""
    qos: QoSClass
    cpu: float | None = None
    """Cores."""
    memory: float | None = None
    """Bytes."""
    io: float | None = None
    """Bytes a second, read and written."""
    throttled: float | None = None
    """The share of periods in which its own CPU limit stopped it."""
    indicators: Mapping[Indicator, float] = field(default_factory=dict)

    @property
    def is_latency_sensitive(self) -> bool:
        """Whether it matters that it suffers."""
        return self.qos in LATENCY_SENSITIVE
