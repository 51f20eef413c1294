"""What the HTTP services and ``koord explain`` say of a gang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordinator.api.timestamps import format_time
from koordinator.scheduler.plugins.coscheduling.gang import Gang, Member, MemberState
from koordinator.scheduler.plugins.coscheduling.gang_cache import GangCache


def gang_document(gang: Gang) -> dict[str, Any]:
    """The gang in the fields of the original's debug API, and ``problems`` with what its declaration has wrong."""
    declaration, group = gang.declaration, gang.group
    waiting = {**gang.by_state[MemberState.WAITING], **gang.by_state[MemberState.BINDING]}
    return {
        "name": gang.id,
        "waitTime": int(declaration.wait_seconds * 10**9) if declaration else 0,
        "createTime": format_time(gang.created_at) if gang.created_at else None,
        "mode": declaration.mode if declaration else "",
        "gangMatchPolicy": declaration.match_policy if declaration else "",
        "minRequiredNumber": declaration.min_member if declaration else 0,
        "totalChildrenNum": declaration.total if declaration else 0,
        "gangGroup": list(declaration.group) if declaration else [],
        "children": _keys(gang.members),
        "pendingChildren": _keys(gang.by_state[MemberState.PENDING]),
        "waitingForBindChildren": _keys(waiting),
        "boundChildren": _keys(gang.by_state[MemberState.BOUND]),
        "onceResourceSatisfied": group is not None and group.once_satisfied,
        "gangGroupInfo": {"gangGroupId": group.id, "failure": group.failure} if group is not None else None,
        "gangFrom": "GangFromPodGroupCrd" if gang.from_pod_group else "GangFromPodAnnotation",
        "hasGangInit": declaration is not None,
        "problems": list(declaration.problems) if declaration else [gang.why_undeclared],
    }


def explained_gang(cache: GangCache, gang: Gang) -> dict[str, Any]:
    """The same with what the gang waits for at this moment, in sentences."""
    return {**gang_document(gang), "waitsFor": _what_it_waits_for(cache, gang)}


def _what_it_waits_for(cache: GangCache, gang: Gang) -> list[str]:
    """Empty for a gang of which every member has its node."""
    if not gang.by_state[MemberState.PENDING] and not gang.by_state[MemberState.WAITING]:
        return []
    declaration, group = gang.declaration, gang.group
    if declaration is None or group is None:
        return [f"Nobody knows how many members must be placed together: {gang.why_undeclared}."]
    if not gang.is_admitted:
        return _what_the_group_lacks(cache, declaration.group)
    found = []
    missing = gang.missing(cache.wave)
    if missing:
        found.append(f"{missing} more of its members must find a node before any is bound.")
    if group.failure:
        failed = cache.member(group.failed_member)
        about = f"for {failed.key}" if failed is not None else "for one member"
        found.append(f"The last attempt ended because there was no node {about}: {group.failure}")
    gated = [member.key for member in gang.by_state[MemberState.PENDING].values() if not member.is_schedulable]
    if gated:
        found.append(
            f"{len(gated)} members have scheduling gates or are being deleted: {', '.join(sorted(gated)[:3])}."
        )
    return found


def _what_the_group_lacks(cache: GangCache, ids: tuple[str, ...]) -> list[str]:
    found = []
    for id_ in ids:
        gang = cache.gangs.get(id_)
        if gang is None:
            found.append(f"Gang {id_} of its group does not exist.")
        elif gang.declaration is None:
            found.append(f"Nobody knows how many members of {id_} must be placed together: {gang.why_undeclared}.")
        elif not gang.is_complete:
            needed = gang.declaration.min_member
            found.append(f"Gang {id_} has {gang.collected} schedulable pods and needs {needed}.")
    return found


def _keys(members: Mapping[str, Member]) -> list[str]:
    return sorted(member.key for member in members.values())
