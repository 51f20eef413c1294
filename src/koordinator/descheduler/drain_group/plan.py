"""The inputs of the decision about a DrainNodeGroup, and its possible steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api.drain_node import DrainNode
from koordinator.api.node import Node
from koordinator.descheduler.drain.plan import DOMAIN
from koordinator.descheduler.plan_controller import PatchObject

ABORT: Final = f"{DOMAIN}/abort"
"""Label of a DrainNodeGroup: all its DrainNodes are aborted where it is "true"."""
Amounts = Mapping[str, int]
"""Resource -> milli-CPU, or bytes."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """What a node has for pods of the resources that a group looks at, and how much of that is free."""

    allocatable: Amounts
    free: Amounts

    @property
    def score(self) -> float:
        """The mean percentage that is free, each rounded down; 0 for a node that has nothing."""
        shares = [100 * self.free[name] // amount for name, amount in self.allocatable.items() if amount > 0]
        return sum(shares) / len(shares) if shares else 0.0


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The cluster around one DrainNodeGroup."""

    nodes: Mapping[str, Node]
    """All nodes, by name."""
    drains: Mapping[str, DrainNode] = field(default_factory=dict)
    """The DrainNodes of the group, by the name of their node."""
    drained_elsewhere: frozenset[str] = frozenset()
    """Nodes with a DrainNode of another owner that has not been aborted."""
    capacities: Mapping[str, NodeCapacity] = field(default_factory=dict)
    """Of all nodes, by name, where another one is to be planned."""
    taken_names: frozenset[str] = frozenset()
    """The names of the DrainNodes of others."""
    waits_for: str = ""
    """An older DrainNodeGroup that has not finished."""


@dataclass(frozen=True, slots=True)
class LabelNode:
    """Set the label of nodes in a group to this name; None removes it."""

    node: str
    group: str | None

    def __str__(self) -> str:
        return f"take node {self.node} into the group" if self.group else f"let node {self.node} leave the group"


@dataclass(frozen=True, slots=True)
class CreateDrainNode:
    """Create this DrainNode."""

    document: dict[str, Any]

    def __str__(self) -> str:
        return f"create DrainNode {self.document['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class PatchDrainNode:
    """Merge this into a DrainNode of the group, but for its status."""

    drain: DrainNode
    patch: dict[str, Any]

    def __str__(self) -> str:
        return f"change DrainNode {self.drain.metadata.name}"


@dataclass(frozen=True, slots=True)
class DeleteDrainNode:
    """Delete a DrainNode of the group."""

    drain: DrainNode

    def __str__(self) -> str:
        return f"delete DrainNode {self.drain.metadata.name}"


GroupAction = LabelNode | CreateDrainNode | PatchDrainNode | DeleteDrainNode | PatchObject
