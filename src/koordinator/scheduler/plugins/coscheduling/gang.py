"""Gangs, their members, the groups of gangs that are placed together, and when enough of them have a node."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from koordinator.api.pod import Pod, PodSpec
from koordinator.scheduler.plugins.coscheduling.declaration import (
    ONCE_SATISFIED,
    ONLY_WAITING,
    STRICT,
    Declaration,
)
from koordinator.scheduler.plugins.coscheduling.network_topology.planner import TopologyPlan
from koordinator.scheduler.plugins.coscheduling.network_topology.requirements import TopologySpec


class MemberState(Enum):
    """How far a member has come."""

    PENDING = "pending"
    WAITING = "waiting"
    """It is assumed on a node, and must not be bound before the others have one."""
    BINDING = "binding"
    """It is assumed on a node, and may be bound."""
    BOUND = "bound"

    __hash__ = object.__hash__


@dataclass(slots=True, eq=False)
class Member:
    """A pod of a gang."""

    pod: Pod
    gang: Gang
    state: MemberState = MemberState.PENDING
    bound_with: int = 0
    """How many members were allowed to be bound together, this one among them."""
    is_rejected: bool = False
    """It has been told that it must not be bound, and is about to be unreserved."""
    not_bound: str = ""
    """Why it was not bound when it was to be, with the others; empty when that has not happened, or it is bound now."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def key(self) -> str:
        return self.pod.metadata.key

    @property
    def is_schedulable(self) -> bool:
        """Whether a scheduler may place the pod at all."""
        return not self.pod.spec.scheduling_gates and self.pod.metadata.deletion_timestamp is None

    @property
    def counts(self) -> bool:
        """Whether it is one of those that there must be before the gang is tried."""
        return self.state is not MemberState.PENDING or self.is_schedulable


@dataclass(slots=True, eq=False)
class Gang:
    """``declaration`` is None while nobody has said how many members must be placed together; then
    ``why_undeclared`` says what is missing."""

    id: str
    """``namespace/name``."""
    created_at: datetime | None = None
    from_pod_group: bool = False
    declaration: Declaration | None = None
    why_undeclared: str = ""
    group: Group | None = None
    members: dict[str, Member] = field(default_factory=dict)
    by_state: dict[MemberState, dict[str, Member]] = field(default_factory=lambda: {state: {} for state in MemberState})
    """By uid, in the order in which they came into the state."""
    collected: int = 0
    """Members that count."""
    is_admitted: bool = False
    """Whether its pods may be tried."""

    @property
    def is_strict(self) -> bool:
        return self.declaration is None or self.declaration.mode == STRICT

    @property
    def is_complete(self) -> bool:
        """Whether there are as many members as must be placed together."""
        return self.declaration is not None and self.collected >= self.declaration.min_member

    @property
    def is_released(self) -> bool:
        """Whether its members are placed one by one: the gang ran once, and its policy asks for no more."""
        return (
            self.declaration is not None
            and self.declaration.match_policy == ONCE_SATISFIED
            and self.group is not None
            and self.group.once_satisfied
        )

    def missing(self, wave: Wave | None) -> int:
        """How many more members must have a node, by the gang's match policy, before those that wait may be bound."""
        declaration = self.declaration
        if declaration is None:
            return 1
        if self.is_released:
            return 0
        placed = len(self.by_state[MemberState.WAITING]) + len(self.by_state[MemberState.BINDING])
        if declaration.match_policy == ONLY_WAITING and wave is not None and wave.group is self.group:
            # Those of the same attempt count as long as it lasts, however fast they are bound.
            placed += sum(1 for uid in wave.permitted | wave.partners if uid in self.by_state[MemberState.BOUND])
        elif declaration.match_policy not in (ONLY_WAITING, ONCE_SATISFIED):
            placed += len(self.by_state[MemberState.BOUND])
        return max(0, declaration.min_member - placed)

    def move(self, member: Member, state: MemberState) -> None:
        """The member comes into another state."""
        before = member.counts
        del self.by_state[member.state][member.uid]
        member.state = state
        self.by_state[state][member.uid] = member
        self.collected += member.counts - before

    def add(self, member: Member) -> None:
        self.members[member.uid] = self.by_state[member.state][member.uid] = member
        self.collected += member.counts

    def remove(self, member: Member) -> None:
        del self.members[member.uid], self.by_state[member.state][member.uid]
        self.collected -= member.counts

    def replace_pod(self, member: Member, pod: Pod) -> None:
        """The pod has changed."""
        self.collected -= member.counts
        member.pod = pod
        self.collected += member.counts


@dataclass(slots=True, eq=False)
class Group:
    """Gangs that are placed together; most are by themselves."""

    ids: tuple[str, ...]
    """Of all gangs that are meant, sorted, whether they exist or not."""
    gangs: dict[str, Gang] = field(default_factory=dict)
    """Those of them that say so, by id."""
    once_satisfied: bool = False
    """Whether any member was ever bound."""
    failure: str = ""
    """Why its last attempt has failed; empty when it has not, or was given up for another reason."""
    failed_member: str = ""
    """The uid of the member for which no node was found in that attempt."""
    together: set[str] = field(default_factory=set)
    """The uids of the members that were allowed to be bound last; one that was not is tried again as one of them."""
    went_first: list[PodSpec] = field(default_factory=list)
    """What the members are like that were tried before all others in the last attempts, since something else than the
    group itself has made room."""
    need_others_room: set[str] = field(default_factory=set)
    """The uids of the members for which no node was found in the last attempt, and to which what members let go is of
    no use, as one that is like them was tried first. Another set for each attempt: who has been given one may keep
    it."""

    plan: TopologyPlan | None = None
    """The last plan for its members in the network; None for a group that does not care for it."""

    @property
    def id(self) -> str:
        return ",".join(self.ids)

    @property
    def is_strict(self) -> bool:
        return any(gang.is_strict for gang in self.gangs.values())

    def begins_with(self, member: Member) -> None:
        """An attempt begins, and has this member as its first."""
        spec = member.pod.spec
        if spec in self.went_first:
            # What the group has let go has not woken it: something else has happened.
            self.went_first.clear()
        self.went_first.append(spec)
        self.need_others_room = set()
        self.failure = self.failed_member = ""

    def failed_by(self, member: Member, why: str) -> None:
        """There is no node for this member."""
        self.failure, self.failed_member = why, member.uid
        if member.pod.spec in self.went_first:
            self.need_others_room.add(member.uid)

    def succeeded(self) -> None:
        """Members may be bound."""
        self.failure = self.failed_member = ""
        self.went_first.clear()
        self.need_others_room = set()

    def members(self, state: MemberState) -> list[Member]:
        """The members of all its gangs that are in a state."""
        return [member for id_ in self.ids if id_ in self.gangs for member in self.gangs[id_].by_state[state].values()]


@dataclass(slots=True, eq=False)
class Wave:
    """One attempt to place all pending members of a group, one after another."""

    group: Group
    todo: deque[str]
    """The uids of those that are still to be tried."""
    attempted: set[str] = field(default_factory=set)
    permitted: set[str] = field(default_factory=set)
    """Those that were allowed to be bound; once there are some, the others are tried one by one."""
    partners: frozenset[str] = frozenset()
    """With whom some of ``todo`` were to be bound in an earlier attempt, and were not."""
    together: int = 0
    """How many were to be bound together in that attempt, as those say that were; 0 if nobody says so."""
    left: int = 0
    """How many of these are not bound yet."""
    failure: str = ""
    """Why the group is given up in this attempt, which the members that are still to be tried are told."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Node -> how many members of a Strict gang had it when one of them failed."""
    preemption: str = ""
    """What has become of the search for room by preemption in this attempt; empty when nobody has looked."""
    regain: str = ""
    """What those are told that have a node and let it go, if they are going to get it again; else empty."""
    topology: TopologySpec | None = None
    """What the gang of its first member asks of the network."""
    plan: TopologyPlan | None = None
    """Which nodes the members get for that, once it has been found out."""

    def bound_with(self, number: int) -> int:
        """As how many are bound together those say of themselves that may be bound now, which are ``number``. Who
        completes an earlier attempt is one of that."""
        if number > self.left:
            return number
        self.left -= number
        return self.together

    def includes(self, uid: str) -> bool:
        """Whether the pod belongs to this attempt; any does that is tried before the attempt has failed."""
        return not self.failure or uid in self.attempted or uid in self.todo


@dataclass(slots=True)
class Instructions:
    """What follows from what has happened; uids of pods."""

    activate: list[str] = field(default_factory=list)
    """To be tried, whatever they wait for."""
    allow: list[str] = field(default_factory=list)
    """Waiting, and to be bound now."""
    reject: list[tuple[str, str]] = field(default_factory=list)
    """Waiting, and not to be bound, each with the reason."""
    ended: list[Wave] = field(default_factory=list)
    """Attempts that are over."""


def basic_check(gangs: Mapping[str, Gang], gang: Gang, declaration: Declaration, pod: Pod) -> str:
    """What the gangs of the group lack, of all ``gangs`` by their ids, so that ``pod`` must not be tried."""
    absent, undeclared, incomplete, details = [], [], False, []
    for id_ in declaration.group:
        other = gangs.get(id_)
        if other is None:
            absent.append(id_)
        elif other.declaration is None:
            undeclared.append(id_)
            details.append(f"{id_}: {other.why_undeclared}")
        elif not other.is_complete:
            incomplete = True
            details.append(f"{id_} has {other.collected} of {other.declaration.min_member} pods")
    parts = [f"memberGangs {_listed(absent)} doesn't exists"] if absent else []
    parts += [f"memberGangs {_listed(undeclared)} has not init"] if undeclared else []
    parts += [f"memberGangs {_listed(declaration.group)} child pod not collect enough"] if incomplete else []
    text = f"gangGroup {_listed(declaration.group)} basic check: {', '.join(parts)}, current gang: {gang.id}"
    text += f", podName: {pod.metadata.key}"
    return f"{text} ({'; '.join(details)})" if details else text


def _listed(ids: Iterable[str]) -> str:
    return f"[{' '.join(ids)}]"
