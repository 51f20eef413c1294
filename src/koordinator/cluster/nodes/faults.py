"""Which node has which fault at a moment, and what its reports look like then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Final

from koordinator.api.node import Node
from koordinator.api.timestamps import format_time
from koordinator.cluster.nodes.node_objects import SimulatedNode
from koordinator.cluster.nodes.scenario import PlannedFault
from koordinator.cluster.nodes.scenario_checks import FAULT_ANNOTATION, Fault
from koordinator.model.node_metric import resource_map

Document = dict[str, Any]

_FAR_TOO_MUCH: Final = 1.3
_CLOCK_DIFFERENCE: Final = timedelta(hours=1)
_NEGATIVE: Final = resource_map(-0.5, -float(1 << 30))


class Faults:
    """What goes wrong by the scenario's plan, unless a node's annotation says otherwise."""

    def __init__(
        self, planned: Sequence[PlannedFault], elapsed: Callable[[], float], find_node: Callable[[str], Node | None]
    ) -> None:
        """``elapsed``: simulated seconds since the start."""
        self._planned = planned
        self._elapsed = elapsed
        self._find_node = find_node
        self._frozen: dict[str, Document] = {}

    def of(self, name: str) -> Fault:
        """What is wrong with a node now."""
        node = self._find_node(name)
        said = said_fault(node) if node is not None else None
        fault = said if said is not None else self._by_plan(name)
        if fault is not Fault.FROZEN_READINGS:
            self._frozen.pop(name, None)
        return fault

    def is_stopped(self, name: str) -> bool:
        """Whether the node is as if it had no power."""
        return self.of(name) is Fault.NODE_STOPPED

    def forget(self, name: str) -> None:
        self._frozen.pop(name, None)

    def distorted(self, node: SimulatedNode, status: Document, now: datetime) -> Document:
        """A NodeMetric status as the node reports it at ``now``."""
        match self.of(node.name):
            case Fault.USAGE_ABOVE_CAPACITY:
                return _with_node_usage(status, resource_map(_FAR_TOO_MUCH * node.cpu, _FAR_TOO_MUCH * node.memory))
            case Fault.NEGATIVE_READINGS:
                return {**status, "nodeMetric": {**status["nodeMetric"], "systemUsage": _NEGATIVE}}
            case Fault.FROZEN_READINGS:
                return {**self._frozen.setdefault(node.name, status), "updateTime": status["updateTime"]}
            case Fault.CLOCK_AHEAD:
                return {**status, "updateTime": format_time(now + _CLOCK_DIFFERENCE)}
            case Fault.CLOCK_BEHIND:
                return {**status, "updateTime": format_time(now - _CLOCK_DIFFERENCE)}
            case _:
                return status

    def _by_plan(self, name: str) -> Fault:
        elapsed = self._elapsed()
        for each in self._planned:
            start = each.after.total_seconds()
            is_over = each.lasts is not None and elapsed >= start + each.lasts.total_seconds()
            if elapsed >= start and not is_over and any(fnmatchcase(name, pattern) for pattern in each.nodes):
                return Fault(each.fault)
        return Fault.NONE


def said_fault(node: Node) -> Fault | None:
    """What the node's annotation says; None where it says nothing, or nothing that is known."""
    text = node.metadata.annotations.get(FAULT_ANNOTATION)
    return Fault(text) if text is not None and text in set(Fault) else None


def _with_node_usage(status: Document, usage: Document) -> Document:
    """The same usage over each window and at each rank that says anything."""
    metric = status["nodeMetric"]
    windows = [
        {**window, "usage": {rank: usage if said else said for rank, said in window["usage"].items()}}
        for window in metric["aggregatedNodeUsages"] or ()
    ]
    return {
        **status,
        "nodeMetric": {
            **metric,
            "nodeUsage": usage,
            "aggregatedNodeUsages": windows if metric["aggregatedNodeUsages"] is not None else None,
        },
    }
