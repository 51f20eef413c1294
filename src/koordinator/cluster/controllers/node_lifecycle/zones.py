"""How fast nodes of a zone may lose their pods: where much is lost, the fault is more likely on this side. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from koordinator.api.node import Node

_RATE: Final = 0.1
"""Nodes a second, --node-eviction-rate of kube-controller-manager, as the next three are its defaults."""
_SLOW_RATE: Final = 0.01
_LARGE: Final = 50
"""In zones of up to so many nodes, most of which are lost, no further node loses its pods."""
_UNHEALTHY_SHARE: Final = 0.55
_FEWEST_UNHEALTHY: Final = 3
EXCLUDED: Final = "node.kubernetes.io/exclude-disruption"
"""A label: the node does not count for the state of its zone."""


class ZoneState(Enum):
    """How much of a zone is lost."""

    INITIAL = "Initial"
    NORMAL = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


def zone_of(node: Node) -> str:
    labels = node.metadata.labels
    return f"{labels.get('topology.kubernetes.io/region', '')}/{labels.get('topology.kubernetes.io/zone', '')}"


def zone_state(ready: Sequence[bool]) -> ZoneState:
    """``ready``: whether each node of the zone is."""
    lost = ready.count(False)
    if lost and lost == len(ready):
        return ZoneState.FULL
    if lost >= _FEWEST_UNHEALTHY and lost / len(ready) >= _UNHEALTHY_SHARE:
        return ZoneState.PARTIAL
    return ZoneState.NORMAL


def eviction_rate(state: ZoneState, size: int) -> float:
    """How many nodes of a zone of ``size`` nodes may lose their pods in a second."""
    if state is not ZoneState.PARTIAL:
        return _RATE
    return _SLOW_RATE if size > _LARGE else 0.0


@dataclass(frozen=True, slots=True)
class Disruption:
    """The states of all zones, and what follows."""

    states: Mapping[str, ZoneState]
    rates: Mapping[str, float]
    """Nodes a second, by zone. All are zero where every node of the cluster is lost: that is taken for a fault of the
    control plane."""
    begins: bool = False
    """No node is left just now: nodes lose the taints that end their pods."""
    ends: bool = False
    """Nodes have come back just now: those that have not yet get time to."""


def disruption(before: Mapping[str, ZoneState], ready: Mapping[str, Sequence[bool]]) -> Disruption:
    """The states after ``before``. ``ready``: whether each node is, by zone."""
    states = {zone: zone_state(nodes) for zone, nodes in ready.items()}
    known = {zone: before.get(zone, ZoneState.INITIAL) for zone in states}
    is_full = all(state is ZoneState.FULL for state in states.values())
    was_full = all(state is ZoneState.FULL for state in known.values())
    if is_full:
        return Disruption(states, dict.fromkeys(states, 0.0), begins=not was_full)
    rates = {zone: eviction_rate(state, len(ready[zone])) for zone, state in states.items()}
    return Disruption(states, rates, ends=was_full)


@dataclass(slots=True)
class TaintQueue:
    """The nodes of a zone that are to lose their pods, the longest waiting first."""

    rate: float = _RATE
    _names: dict[str, None] = field(default_factory=dict)
    _last: float | None = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def add(self, name: str) -> None:
        self._names[name] = None

    def discard(self, name: str) -> None:
        self._names.pop(name, None)

    def wait(self, now: float) -> float | None:
        """Seconds until the first node may be taken; None if there is none, or as long as the rate is zero."""
        if not self._names or self.rate <= 0:
            return None
        return 0.0 if self._last is None else max(0.0, self._last + 1 / self.rate - now)

    def take(self, now: float) -> str:
        """Remove and return the first node."""
        self._last = now
        name = next(iter(self._names))
        del self._names[name]
        return name
