"""The inputs of the decision about a DrainNode, its possible steps, and the names that it uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.reservation import Reservation
from koordinator.descheduler.plan_controller import CreateObject, DeleteObject, PatchObject, PatchOther

DOMAIN: Final = "drain.descheduler.koordinator.sh"
FINALIZER: Final = f"{DOMAIN}/drain"
DRAIN_NODE: Final = f"{DOMAIN}/drain-node"
"""Key of the taint, and label of what belongs to a DrainNode: its name."""
NODE_PLANNING: Final = f"{DOMAIN}/node-planning"
"""Label of nodes that are being drained; no place is reserved on one."""
NODE_GROUP: Final = f"{DOMAIN}/node-group"
"""Label of nodes that are to be drained later; places are reserved elsewhere where that is possible."""
MIGRATION_POLICY: Final = f"{DOMAIN}/migration-policy"
"""Annotation of a pod: when it is moved, as JSON."""
PAUSED_AFTER_CONFIRMED: Final = f"{DOMAIN}/paused-after-confirmed"
CLEAN_TAINT: Final = f"{DOMAIN}/clean-taint"
WAS_UNSCHEDULABLE: Final = f"{DOMAIN}/was-unschedulable"
"""Annotation of a DrainNode that has cordoned its node: whether that was unschedulable before."""
DRAINED_NODE: Final = f"{DOMAIN}/drained-node"
"""Annotation beside it: the name of the node. ``spec.nodeName`` must not change, but no API server sees to that."""
CORDONED_BY: Final = f"{DOMAIN}/cordoned-by"
"""Annotation beside it: the cordon policy, as JSON, so that what was done is undone, whatever the policy is by then."""


@dataclass(frozen=True, slots=True)
class DrainFacts:
    """The cluster around one DrainNode."""

    node: Node | None
    pods: Sequence[Pod] = ()
    """All pods of the node."""
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    """Those that belong to the DrainNode, by name."""
    jobs: Mapping[str, PodMigrationJob] = field(default_factory=dict)
    """Those that belong to the DrainNode, by name."""
    drained_by: str = ""
    """Another DrainNode that drains the node already."""
    renamed_to: str = ""
    """What ``spec.nodeName`` is now, if it was changed since the drain began; the decision sees the old one."""


@dataclass(frozen=True, slots=True)
class Cordon:
    """Keep new pods off the node, or let them come back."""

    wanted: bool

    def __str__(self) -> str:
        return "cordon its node" if self.wanted else "uncordon its node"


@dataclass(frozen=True, slots=True)
class ReservePlace:
    """Create the Reservation of this name for a pod of the node."""

    pod: Pod
    name: str

    def __str__(self) -> str:
        return f"create Reservation {self.name} for pod {self.pod.metadata.key}"


Action = Cordon | ReservePlace | PatchObject | CreateObject | PatchOther | DeleteObject
