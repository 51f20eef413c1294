"""Gangs, their members, groups of gangs that are placed together, and when enough members have a node to be bound."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final

from koordinator.api.pod import Pod, PodSpec
from koordinator.model.gang_declaration import (
    ONCE_SATISFIED,
    ONLY_WAITING,
    STRICT,
    Declaration,
    TopologySpec,
    gang_id_of,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.coscheduling.network_topology.solver import TopologyPlan

_MEMO: Final = "Coscheduling"


def gang_of(pod: PodInfo) -> str:
    """The id of the gang of a pod that the scheduler holds, which is asked for it at every extension point; empty for
    a pod that is in no gang."""
    known: str | None = pod.memo.get(_MEMO)
    if known is None:
        known = pod.memo[_MEMO] = gang_id_of(pod.pod)
    return known


class MemberState(Enum):
    """The stage of scheduling that a member has reached."""

    PENDING = "pending"
    WAITING = "waiting"
    """It is assumed on a node and waits at Permit until enough other members have a node."""
    BINDING = "binding"
    """It is assumed on a node and allowed to be bound."""
    BOUND = "bound"

    __hash__ = object.__hash__


@dataclass(slots=True, eq=False)
class Member:
    """A pod of a gang."""

    pod: Pod
    gang: Gang
    state: MemberState = MemberState.PENDING
    bound_with: int = 0
    """How many members were allowed to be bound together, this one included."""
    is_rejected: bool = False
    """It was rejected while it waited at Permit, and is about to be unreserved."""
    not_bound: str = ""
    """Why its binding failed after it was allowed to be bound with the others; empty if it did not, or was bound
    since."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def key(self) -> str:
        return self.pod.metadata.key

    @property
    def is_schedulable(self) -> bool:
        """Whether a scheduler may place the pod: it has no scheduling gates and is not being deleted."""
        return not self.pod.spec.scheduling_gates and self.pod.metadata.deletion_timestamp is None

    @property
    def counts(self) -> bool:
        """Whether it counts towards the minimum number of members that must exist before the gang is tried."""
        return self.state is not MemberState.PENDING or self.is_schedulable


@dataclass(slots=True, eq=False)
class Gang:
    """``declaration`` is None as long as no PodGroup or pod states how many members must be placed together; then
    ``why_undeclared`` says what is missing."""

    id: str
    """``namespace/name``."""
    created_at: datetime | None = None
    from_pod_group: bool = False
    workload: str = ""
    """The key of the Workload of which it is a pod group; empty for all others."""
    declaration: Declaration | None = None
    why_undeclared: str = ""
    group: Group | None = None
    members: dict[str, Member] = field(default_factory=dict)
    by_state: dict[MemberState, dict[str, Member]] = field(default_factory=lambda: {state: {} for state in MemberState})
    """State -> the members in it by uid, in the order in which they entered it."""
    collected: int = 0
    """The number of members that count, see Member.counts."""
    is_admitted: bool = False
    """Whether PreEnqueue admits its pods to the queue."""

    @property
    def is_strict(self) -> bool:
        return self.declaration is None or self.declaration.mode == STRICT

    @property
    def is_complete(self) -> bool:
        """Whether there are at least as many members as must be placed together."""
        return self.declaration is not None and self.collected >= self.declaration.min_member

    @property
    def is_released(self) -> bool:
        """Whether its members are placed one by one: its policy is once-satisfied, and it has been satisfied once."""
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
            # Members of the same attempt count until it ends, even those that are bound already.
            placed += sum(1 for uid in wave.permitted | wave.partners if uid in self.by_state[MemberState.BOUND])
        elif declaration.match_policy not in (ONLY_WAITING, ONCE_SATISFIED):
            placed += len(self.by_state[MemberState.BOUND])
        return max(0, declaration.min_member - placed)

    def move(self, member: Member, state: MemberState) -> None:
        """Move the member into another state."""
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
        """Replace the member's pod by its changed version."""
        self.collected -= member.counts
        member.pod = pod
        self.collected += member.counts


@dataclass(slots=True, eq=False)
class Group:
    """Gangs that are placed together; most groups have one gang only."""

    ids: tuple[str, ...]
    """The ids of all gangs that the declaration names, sorted, whether they exist or not."""
    gangs: dict[str, Gang] = field(default_factory=dict)
    """The gangs whose declarations name exactly this group, by id."""
    once_satisfied: bool = False
    """Whether any member was ever bound."""
    failure: str = ""
    """Why no node was found for a member in the last attempt; empty if it succeeded, or failed for another reason."""
    failed_member: str = ""
    """The uid of the member for which no node was found in that attempt."""
    together: set[str] = field(default_factory=set)
    """The uids of the members that were last allowed to be bound together; one that was not bound counts them as its
    partners when it is tried again."""
    went_first: list[PodSpec] = field(default_factory=list)
    """The specs of the members with which the last attempts began, since capacity was last freed by anything but the
    group itself."""
    need_foreign_capacity: set[str] = field(default_factory=set)
    """The uids of the members that found no node in the last attempt and that nodes released by members cannot help,
    since an attempt that began with a member of the same spec failed, too. Each attempt makes a new set, so callers may
    keep the one they got."""

    plan: TopologyPlan | None = None
    """The last network topology plan for its members; None for a group without network topology requirements."""

    @property
    def id(self) -> str:
        return ",".join(self.ids)

    @property
    def is_strict(self) -> bool:
        return any(gang.is_strict for gang in self.gangs.values())

    def begins_with(self, member: Member) -> None:
        """Record that an attempt begins with this member."""
        spec = member.pod.spec
        if spec in self.went_first:
            # Nodes released by the group do not requeue such a member, so another event did.
            self.went_first.clear()
        self.went_first.append(spec)
        self.need_foreign_capacity = set()
        self.failure = self.failed_member = ""

    def failed_by(self, member: Member, why: str) -> None:
        """Record that no node was found for this member."""
        self.failure, self.failed_member = why, member.uid
        if member.pod.spec in self.went_first:
            self.need_foreign_capacity.add(member.uid)

    def succeeded(self) -> None:
        """Record that members are allowed to be bound."""
        self.failure = self.failed_member = ""
        self.went_first.clear()
        self.need_foreign_capacity = set()

    def members(self, state: MemberState) -> list[Member]:
        """The members of all its gangs that are in a state."""
        return [member for id_ in self.ids if id_ in self.gangs for member in self.gangs[id_].by_state[state].values()]


@dataclass(slots=True, eq=False)
class Wave:
    """One attempt to place all pending members of a group, one after another."""

    group: Group
    todo: deque[str]
    """The uids of the members that are still to be tried."""
    began: datetime | None = None
    """When its first member was tried."""
    attempted: set[str] = field(default_factory=set)
    permitted: set[str] = field(default_factory=set)
    """The uids of the members that were allowed to be bound; once there are any, the others are tried one by one."""
    partners: frozenset[str] = frozenset()
    """The uids of the members with which some of ``todo`` should have been bound in an earlier, interrupted attempt."""
    together: int = 0
    """How many members that attempt allowed to be bound together, by the annotations of those that were; 0 if none has
    them."""
    left: int = 0
    """How many of those are not bound yet."""
    failure: str = ""
    """Why this attempt failed for the whole group; the members that are still to be tried are rejected with it."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Node -> how many members of a Strict gang were assumed on it when one of the members failed."""
    preemption: str = ""
    """The message of this attempt's job preemption; empty if preemption was not tried."""
    regain: str = ""
    """The message with which waiting members are rejected when they are nominated to the same nodes; else empty."""
    topology: TopologySpec | None = None
    """The network topology requirements of the first member's gang."""
    plan: TopologyPlan | None = None
    """The nodes planned for the members by these requirements; None until they are planned."""

    def bound_with(self, number: int) -> int:
        """Return the member count to write into the annotations of ``number`` members that may be bound now: the count
        of the earlier attempt if they complete one, otherwise ``number``."""
        if number > self.left:
            return number
        self.left -= number
        return self.together

    def includes(self, uid: str) -> bool:
        """Whether the pod belongs to this attempt: any pod does until the attempt has failed."""
        return not self.failure or uid in self.attempted or uid in self.todo


@dataclass(slots=True)
class Instructions:
    """What the scheduler must do after an event; pods are named by uid."""

    activate: list[str] = field(default_factory=list)
    """Pending pods to be moved into the active queue, whatever events they wait for."""
    allow: list[str] = field(default_factory=list)
    """Pods that wait at Permit, to be bound now."""
    reject: list[tuple[str, str]] = field(default_factory=list)
    """Pods that wait at Permit, to be rejected, each with the reason."""
    ended: list[Wave] = field(default_factory=list)
    """Attempts that have ended."""

    def __bool__(self) -> bool:
        return bool(self.activate or self.allow or self.reject or self.ended)


def basic_check(gangs: Mapping[str, Gang], gang_id: str, pod: Pod) -> str:
    """Return the message why ``pod`` may not be tried: what the gangs of its group lack. ``gangs``: all, by id."""
    gang = gangs.get(gang_id)
    if gang is None:
        return f"can't find gang, gangName: {gang_id}, podName: {pod.metadata.key}"
    declaration = gang.declaration
    if declaration is None:
        return f"gang has not init, gangName: {gang_id}, podName: {pod.metadata.key}: {gang.why_undeclared}"
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
