"""What decisions read: the cluster as columns, as pods on rows, and as objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.scheduler.engine.allocations import AllocationLedger
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.label_groups import LabelGroups
from koordinator.scheduler.engine.nominations import Nominations
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.waiting_pods import WaitingPods

if TYPE_CHECKING:
    from koordinator.scheduler.engine.journal import Journal


class PendingEvictions:
    """By uid of the pod that is to leave."""

    def __init__(self) -> None:
        self._expected: dict[str, list[Callable[[], None]]] = {}

    def expect(self, uid: str, on_seen: Callable[[], None]) -> None:
        """Call ``on_seen`` once when the view shows that the pod is leaving or gone."""
        self._expected.setdefault(uid, []).append(on_seen)

    def seen(self, uid: str) -> None:
        """The view shows it now; also said when nobody is going to see it leave."""
        for on_seen in self._expected.pop(uid, ()):
            on_seen()


@dataclass(slots=True)
class ClusterView:
    """The engine owns it; plugins may keep columns of their own beside it (see EventHandler)."""

    columns: NodeColumns
    pods_on: dict[int, dict[str, PodInfo]] = field(default_factory=dict)
    """Row -> uid -> pod, assumed pods included."""
    labels: LabelGroups = field(default_factory=LabelGroups)
    """The same pods, by namespace and labels."""
    nominations: Nominations = field(default_factory=Nominations)
    """Pending pods that are nominated to a node."""
    pending_evictions: PendingEvictions = field(default_factory=PendingEvictions)
    """Pods that are being evicted."""
    waiting: WaitingPods = field(default_factory=WaitingPods)
    """Pods that have their room and wait for Permit plugins."""
    allocations: AllocationLedger = field(default_factory=AllocationLedger)
    """What pods on nodes hold of plugins that allocate."""
    pseudo_pods: set[str] = field(default_factory=set)
    """The uids of pods that no API server has, see Handle.set_pseudo_pod."""
    objects: dict[str, dict[str, Object]] = field(default_factory=dict)
    """Name of a kind that some plugin watches -> key (``namespace/name``, or the name) -> object."""
    shared: dict[str, Any] = field(default_factory=dict)
    """What plugins derive from all this for every profile at once, by names of their own."""
    simulate: Callable[[], Journal] = field(init=False)
    """Opens a block of changes that are all taken back. Set by the cluster state."""
    now: datetime | None = None
    """The moment of the decision or the event, set before each one."""

    def objects_of(self, kind: Kind[Any]) -> Mapping[str, Any]:
        """All objects of a kind that some plugin ``watches``, by key."""
        return self.objects.get(kind.name, {})
