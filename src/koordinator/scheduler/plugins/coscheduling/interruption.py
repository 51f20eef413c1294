"""Interrupted attempts: the scheduler restarted, or another one became the leader, while a gang was being bound.

Only the API keeps a record of such an attempt. Each member that is bound with others has annotations with the group's
id and N, the number of members that were allowed to be bound together; its Binding writes both. A pending member was
one of them if

1. fewer than N members have these annotations, the members of one attempt being the last N that were bound, and
2. it existed when these were bound: it was not created after the time of their condition PodScheduled.

A member that was bound and then deleted lowers the number, too, but its replacement is created later: the gang's match
policy decides about the replacement. Both times are the API server's, in whole seconds, so that a pod that replaces
another within the second of its binding is taken for a partner, which is placed without waiting for others. Members
beyond N were to be bound by themselves; the policy decides about them as well, unless one of the N has been deleted:
then one of them that existed at the time takes its place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from datetime import datetime
from typing import Final, NamedTuple

from koordinator.api.annotations import BIND_GANG_GROUP_ID, BIND_GANG_MEMBER_COUNT
from koordinator.api.pod import Pod
from koordinator.scheduler.plugins.coscheduling.gang import Group, Member, MemberState, Wave


class Interruption(NamedTuple):
    """The uids of the members that were to be bound together: ``bound`` are, ``waiting`` are still pending. ``total``
    is how many were to be bound together."""

    bound: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    total: int = 0


NONE: Final = Interruption()


class _Bound(NamedTuple):
    at: datetime
    uid: str


def interruption(group: Group) -> Interruption:
    """The interrupted attempt to bind members of the group, or NONE; of several the one with most members missing."""
    by_count = _bound_by_count(group) if any(gang.by_state[MemberState.BOUND] for gang in group.gangs.values()) else {}
    if not by_count:
        return NONE
    pending = group.members(MemberState.PENDING)
    found = [_of_count(count, sorted(bound), pending) for count, bound in by_count.items()]
    return max(found, key=lambda each: each.total - len(each.bound))


def next_wave(group: Group, first: str = "") -> Wave:
    """Return a new wave that begins with the member ``first``. If some of its members belong to an interrupted attempt,
    the members of that attempt are its partners."""
    wave = Wave(group, deque(_in_turn(group, first)))
    found = interruption(group)
    if not group.together.isdisjoint(wave.todo):
        wave.partners = frozenset(group.together)
    elif found.bound <= group.together:
        # This process made that attempt and saw it end: it was not interrupted.
        return wave
    wave.partners |= found.bound | found.waiting
    wave.together, wave.left = found.total, found.total - len(found.bound)
    return wave


def _in_turn(group: Group, first: str) -> list[str]:
    """The uids of the pending members in the order in which they are tried: first as many of each gang as its minimum
    needs, then those beyond, which could otherwise take the nodes that another gang of the group needs."""
    needed, others = list[str](), list[str]()
    for gang in (group.gangs[id_] for id_ in group.ids if id_ in group.gangs):
        members = gang.by_state[MemberState.PENDING]
        pending = sorted(members, key=lambda uid: (not members[uid].is_schedulable, uid != first))
        missing = gang.missing(None)
        needed += pending[:missing]
        others += pending[missing:]
    return needed + others


def _bound_by_count(group: Group) -> dict[int, list[_Bound]]:
    found: dict[int, list[_Bound]] = {}
    for member in group.members(MemberState.BOUND):
        count, at = _bound_with(member, group.id), _bound_at(member.pod)
        if count > 1 and at is not None:
            found.setdefault(count, []).append(_Bound(at, member.uid))
    return found


def _of_count(count: int, bound: list[_Bound], pending: list[Member]) -> Interruption:
    """The interrupted attempt that allowed ``count`` members to be bound together, or NONE. ``bound``: the members that
    were bound with that count, in the order of time."""
    times = [each.at for each in bound]
    waiting: set[str] = set()
    most = 0
    for member in pending:
        created = member.pod.metadata.creation_timestamp
        since = bisect_left(times, created) if created is not None else len(times)
        if of_attempt := (len(times) - since) % count:
            waiting.add(member.uid)
            most = max(most, of_attempt)
    if not most:
        return NONE
    return Interruption(frozenset([each.uid for each in bound[-most:]]), frozenset(waiting), count)


def _bound_with(member: Member, group_id: str) -> int:
    """How many members, this one included, were to be bound together; 0 if it was bound alone, or in another group."""
    annotations = member.pod.metadata.annotations
    text = annotations.get(BIND_GANG_MEMBER_COUNT, "") if annotations.get(BIND_GANG_GROUP_ID) == group_id else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < len("1000000000") else 0


def _bound_at(pod: Pod) -> datetime | None:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True":
            return condition.last_transition_time
    return None
