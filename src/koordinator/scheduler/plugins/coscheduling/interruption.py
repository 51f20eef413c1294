"""Members that were to be bound together and were not, because the scheduler or its leader changed in between.

Nothing but the API remembers such an attempt. Each member that is bound with others bears the id of the group and N,
the number of those that were allowed to be bound together; its Binding writes both. A pending member was one of them if

1. fewer than N bear that, those of one attempt being the last ones that were bound (N at a time), and
2. it was there when these were bound: it was not created after the moment of their condition PodScheduled.

A member that was bound and has gone lowers the number, too, but what replaces it is created later: the gang's match
policy decides about that one. Both times are the API server's, in whole seconds, so that a pod that replaces another
within the second of its binding is taken for a partner, which is placed without waiting for others. Members beyond N
were to be bound with nobody; the policy decides about them as well, unless one of the N has gone: then one of them that
was there takes its place.
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
    """The uids of the members that were to be bound together: of those that are bound, and of those that still wait.
    ``total`` is how many they were to be."""

    bound: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    total: int = 0


NONE: Final = Interruption()


class _Bound(NamedTuple):
    at: datetime
    uid: str


def interruption(group: Group) -> Interruption:
    """The attempt to bind members of the group that came to no end, if some of them wait for that; of several the one
    of which the most are missing."""
    by_count = _bound_by_count(group) if any(gang.by_state[MemberState.BOUND] for gang in group.gangs.values()) else {}
    if not by_count:
        return NONE
    pending = group.members(MemberState.PENDING)
    found = [_of_count(count, sorted(bound), pending) for count, bound in by_count.items()]
    return max(found, key=lambda each: each.total - len(each.bound))


def next_wave(group: Group, first: str = "") -> Wave:
    """The attempt that begins now, with the member ``first``. Those with whom some of its members were to be bound
    count as its own."""
    wave = Wave(group, deque(_in_turn(group, first)))
    found = interruption(group)
    if not group.together.isdisjoint(wave.todo):
        wave.partners = frozenset(group.together)
    elif found.bound <= group.together:
        # We have seen all of that attempt to its end.
        return wave
    wave.partners |= found.bound | found.waiting
    wave.together, wave.left = found.total, found.total - len(found.bound)
    return wave


def _in_turn(group: Group, first: str) -> list[str]:
    """The uids of the pending members, as many of each gang as it needs before any that it could do without: these
    would take the nodes of another gang's."""
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
    """``bound`` says that ``count`` were to be bound together, in the order of time."""
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
