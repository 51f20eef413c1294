"""What plugins of the descheduler are: their inputs and their results.

A plugin decides on one snapshot of the cluster and proposes steps, one at a time; it is sent back whether each step was
taken, because what it proposes next depends on that: a pod that could not be evicted frees nothing. So a plugin is a
generator without I/O, and the same code serves the program, a dry run, a test and a what-if:

    def balance(self, snapshot):
        for pod in snapshot.pods_on("node-1"):
            if not self.handle.evictor.filter(pod):
                taken = yield Eviction(pod, "node-1 is overutilized")

The code that runs the generator reads the live objects before each step (``cycle``).
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any, ClassVar, Protocol, Self

from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod, is_finished
from koordinator.api.pod_migration_job import DeleteOptions
from koordinator.api.reservation import Reservation
from koordinator.base.clock import Clock
from koordinator.base.metrics import Metrics
from koordinator.kube.events import EventRecorder
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.model.recommendations import RecommendationIndex

Refusals = Sequence[str]
"""Why a pod may not be evicted, in the order in which it was found; empty: it may be."""

NOTHING_REFUSED: Refusals = ()


@dataclass(frozen=True, slots=True)
class Eviction:
    """Evict ``pod``. ``reason`` is for people; ``dry_run``: only say so, without counting it towards any limit."""

    pod: Pod
    reason: str
    options: DeleteOptions | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Cordon:
    """Set ``spec.unschedulable`` of a node."""

    node: str
    unschedulable: bool
    reason: str


@dataclass(frozen=True, slots=True)
class DeletionCost:
    """Set the annotation by which controllers choose the pods that they delete first."""

    pod: Pod
    cost: int
    reason: str


@dataclass(frozen=True, slots=True)
class Remark:
    """Nothing to do: why a plugin does what it does, for the log. A plugin that computes for long also makes empty
    ones, so that others get the processor."""

    text: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class HotNode:
    """Nothing to do: a node that is over a threshold, for the log and for ``koord explain rebalance``."""

    node: str
    pool: str
    pods: str
    """Whose usage it is: ``all``, or ``prod`` for that of the pods of class prod alone."""
    usage: Mapping[str, float]
    """Resource -> percent of what is allocatable, of those that are over their thresholds."""
    thresholds: Mapping[str, float]
    """The same resources -> percent."""
    cycles: int
    """In how many cycles in a row it was hot, with this one."""
    needed: int
    """In how many it has to be before its pods are evicted."""
    is_confirmed: bool
    """Whether it has been hot for long enough, now or a short time ago."""

    def __str__(self) -> str:
        over = ", ".join(f"{name} {used:.2f}% > {self.thresholds[name]:.2f}%" for name, used in self.usage.items())
        whose = "its pods of class prod" if self.pods == "prod" else "it"
        count = f"hot cycles in a row: {self.cycles} of {self.needed}"
        return f"node {self.node} of pool {self.pool}: {whose} uses {over}; {count}"


Step = Eviction | Cordon | DeletionCost | Remark | HotNode
Plan = Generator[Step, bool, None]
"""Steps; the result of each is whether it was taken."""


@dataclass(frozen=True)
class Snapshot:
    """The cluster as it was at ``now``; plugins neither change it nor look anywhere else."""

    nodes: Sequence[Node]
    """Ready nodes of the profile, by name."""
    pods_by_node: Mapping[str, Sequence[Pod]]
    """All pods that are bound to a node, in whatever phase; a node without pods may be absent."""
    now: datetime
    """The wall clock, in UTC: what ages and expirations are worked out from."""
    monotonic: float = 0.0
    """Seconds of a clock that never goes back: what timeouts of the program's own are worked out from."""
    node_metrics: Mapping[str, NodeMetric] = field(default_factory=dict)
    """By the name of the node."""
    reservations: Mapping[str, Sequence[Reservation]] = field(default_factory=dict)
    """By the name of the node that they are on, in whatever phase; a node without may be absent."""
    recommendations: RecommendationIndex = field(default_factory=RecommendationIndex)
    """Empty unless some plugin ``reads_recommendations``."""

    def pods_on(self, node: str) -> Sequence[Pod]:
        """The pods of a node that occupy something: neither succeeded nor failed."""
        return [pod for pod in self.pods_by_node.get(node, ()) if not is_finished(pod)]


@dataclass(frozen=True, slots=True)
class EvictionResult:
    """``message`` says why not, or what was done instead (a job was created)."""

    evicted: bool
    message: str = ""


class Evictor(Protocol):
    """What plugins ask before they propose an eviction: the filter plugins of the profile, in order."""

    def filter(self, pod: Pod) -> Refusals:
        """Why the pod may not be evicted now; called for every candidate, so it does no I/O."""
        ...

    def pre_eviction_filter(self, pod: Pod) -> Refusals:
        """The same just before the eviction, with what is too expensive to check for every candidate."""
        ...


@dataclass(frozen=True)
class Handle:
    """What a plugin is made with, besides its arguments."""

    profile: str
    client: Client
    informers: InformerSet
    """Create the informers in ``__init__``; they are in sync before anything else is called."""
    evictor: Evictor
    recorder: EventRecorder
    """Its events come from the profile."""
    clock: Clock
    random: Random
    metrics: Metrics
    dry_run: bool = False
    """Of the whole program: nothing is written, and ``client`` refuses it."""
    node_selector: LabelSelector | None = None
    """Of the profile."""
    gates: frozenset[str] = frozenset()
    """The feature gates that are on."""


class Plugin:
    """What all plugins have in common. ``args_type`` is what the plugin's arguments are decoded to, a msgspec struct or
    a dataclass; None for a plugin that takes them as they are written."""

    name: ClassVar[str] = ""
    args_type: ClassVar[type[Any] | None] = None
    has_controllers: ClassVar[bool] = False
    """Whether ``run`` works on objects of the whole cluster: only one profile may have such a plugin, since those of
    two would carry out the same work."""

    def __init__(self, args: Any, handle: Handle) -> None:
        self.args = args
        self.handle = handle

    @property
    def reads_recommendations(self) -> bool:
        """Whether snapshots have to have the Recommendations, for this instance with its arguments."""
        return False

    def rehearsing(self) -> Self:
        """A copy for a plan that is not carried out; it gets a handle of its own. A plugin that remembers something
        from cycle to cycle copies that, too, so that the plan leaves no trace."""
        return copy.copy(self)

    async def start(self) -> None:
        """Called once, when all informers are in sync; what it raises ends the program."""

    async def prepare(self, snapshot: Snapshot) -> None:
        """Called before each cycle with all its nodes, for what filters look up; may do I/O."""

    async def run(self) -> None:
        """Work beside the cycles, such as a controller, while this instance leads; cancelled at the end. Not called in
        a dry run."""

    async def intentions(self) -> Sequence[str]:
        """What ``run`` would do now, a sentence each; asked for after each cycle of a dry run. May read, and cannot
        write."""
        return ()


class DeschedulePlugin(Plugin):
    """Takes away pods that should not be where they are."""

    def deschedule(self, snapshot: Snapshot) -> Plan:
        raise NotImplementedError


class BalancePlugin(Plugin):
    """Takes away pods so that the nodes become more alike."""

    def balance(self, snapshot: Snapshot) -> Plan:
        raise NotImplementedError


class FilterPlugin(Plugin):
    """Says which pods may be evicted at all."""

    def filter(self, pod: Pod) -> Refusals:
        raise NotImplementedError

    def pre_eviction_filter(self, pod: Pod) -> Refusals:
        return NOTHING_REFUSED


class EvictPlugin(Plugin):
    """Carries evictions out; each profile has exactly one."""

    async def evict(self, pod: Pod, plugin: str, reason: str, options: DeleteOptions | None) -> EvictionResult:
        """Have the pod leave its node. ``plugin`` and ``reason`` say who wants that, and why; ``options`` are those of
        the deletion. Errors of the API server are results, not exceptions."""
        raise NotImplementedError

    def plan_eviction(self, pod: Pod) -> EvictionResult:
        """What ``evict`` would come to as far as can be known without asking the API server, for cycles that carry
        nothing out. Filters count the pod from here on as they would if it had been evicted."""
        return EvictionResult(True)
