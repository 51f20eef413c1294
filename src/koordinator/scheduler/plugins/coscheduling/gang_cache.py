"""The gangs of the cluster as a state machine: its inputs are events of pods and PodGroups, its output instructions.

A group of gangs is tried in attempts, called waves. The first member that is popped from the queue begins a wave; all
other pending members are tried right after it, before any other pod. In the end either enough members have a node and
are bound, or all members of a Strict gang release their nodes. So there is never more than one wave, and no Strict gang
that is not being tried holds nodes that another one waits for. Members of a NonStrict gang may keep their nodes for the
gang's waiting time, and then all of them release their nodes at once.

This module does not know the queue, the nodes or the time: callers carry out the instructions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from koordinator.api.generic_workload import GenericWorkload
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
from koordinator.model.gang_declaration import Declaration, Defaults, gang_id_of
from koordinator.scheduler.plugins.coscheduling.declarations import Declarations
from koordinator.scheduler.plugins.coscheduling.gang import (
    Gang,
    Group,
    Instructions,
    Member,
    MemberState,
    Wave,
    basic_check,
)
from koordinator.scheduler.plugins.coscheduling.interruption import next_wave

ALL_ATTEMPTED: Final = "all pending pods is already been attempted"
_NOT_DONE: Final = "its binding was given up"
_UNRESERVED: Final = 'Gang "{}" gets rejected due to Pod "{}" in Unreserve'


class GangCache:
    """All gangs of the cluster. The owner must call ``take_instructions`` after each event, see ``Gangs.tell``."""

    def __init__(self, defaults: Defaults | None = None, *, reads_workloads: bool = False) -> None:
        self.gangs: dict[str, Gang] = {}
        """By ``namespace/name``."""
        self.wave: Wave | None = None
        """The current attempt."""
        self._declarations = Declarations(defaults or Defaults(), reads_workloads=reads_workloads)
        self.by_uid: dict[str, Member] = {}
        """The members of all gangs, to be read only."""
        self.groups: dict[str, Group] = {}
        """By their ids, to be read only."""
        self.instructions = Instructions()
        """What is to be done since they were taken last."""
        self.clear()

    def clear(self) -> None:
        """Forget all events. Members and groups that are shown again are where they were in their attempts."""
        self._known: tuple[dict[str, Member], dict[str, Group]] = self.by_uid, self.groups
        self.by_uid, self.groups = {}, {}
        self._naming: dict[str, dict[str, Group]] = {}
        """Id of a gang -> the groups that include it, by their ids; mostly one."""
        self._declarations.clear()
        self.gangs.clear()

    def take_instructions(self) -> Instructions:
        """Return the instructions collected since the last call, and clear them."""
        taken, self.instructions = self.instructions, Instructions()
        return taken

    # Events of the API.

    def set_pod(self, pod: Pod, node_name: str) -> None:
        """The pod was added or updated; ``node_name`` is its node, "" if it has none."""
        uid, gang_id = pod.metadata.uid, gang_id_of(pod)
        member = self.by_uid.get(uid)
        if member is not None and member.gang.id != gang_id:
            self.remove_pod(uid)
            member = None
        if not gang_id:
            return
        if member is None:
            gang = self.gangs.get(gang_id) or self._new_gang(gang_id)
            known = self._known[0].pop(uid, None)
            member = self.by_uid[uid] = known or Member(pod, gang)
            member.pod, member.gang = pod, gang
            gang.add(member)
            self._join_wave(member)
        else:
            member.gang.replace_pod(member, pod)
        self._declare_by(member)
        if node_name and member.state is not MemberState.BOUND:
            self._to_bound(member)
        self._review(member.gang)

    def remove_pod(self, uid: str) -> None:
        """The pod was deleted, or has finished."""
        member = self.by_uid.pop(uid, None)
        if member is None:
            return
        gang, group = member.gang, member.gang.group
        gang.remove(member)
        if member.state is MemberState.WAITING and gang.is_strict:
            self._reject_waiting(group, _UNRESERVED.format(member.gang.id, member.pod.metadata.name))
        if not gang.members and not gang.from_pod_group:
            self._drop(gang)
        self._review(gang)
        if group is not None:
            group.together.discard(uid)
        if group is not None and group.failed_member == uid:
            # The others wait for events that may help the removed member, or for none at all.
            group.failed_member = ""
            self._activate_pending(group.gangs.values())

    def set_pod_group(self, pod_group: PodGroup) -> None:
        """The PodGroup was added or updated."""
        metadata = pod_group.metadata
        gang = self.gangs.get(metadata.key) or self._new_gang(metadata.key)
        gang.from_pod_group, gang.created_at = True, metadata.creation_timestamp
        self._declare_anew(gang, self._declarations.of_pod_group(pod_group))

    def set_workload(self, key: str, workload: GenericWorkload | None) -> None:
        """The Workload was added or updated; or deleted, if it is None."""
        for gang in self._declarations.set_workload(key, workload):
            self._declare_anew(gang, self._declarations.of_pod(gang, next(iter(gang.members.values())).pod))

    def remove_pod_group(self, gang_id: str) -> None:
        """The PodGroup was deleted; the declaration of its pods is used again."""
        gang = self.gangs.get(gang_id)
        if gang is None or not gang.from_pod_group:
            return
        gang.from_pod_group = False
        self._undeclare(gang, f"there is no PodGroup {gang.id}")
        for member in gang.members.values():
            self._declare_by(member)
        if not gang.members:
            self._drop(gang)
        self._review(gang)

    # Stages of a pod's scheduling cycle.

    def admission_error(self, pod: Pod) -> str:
        """Why PreEnqueue must keep the pod out of the queue; empty if it need not, and for a pod that is in no gang."""
        gang_id = gang_id_of(pod)
        gang = self.gangs.get(gang_id)
        if not gang_id or (gang is not None and gang.is_admitted):
            return ""
        return basic_check(self.gangs, gang_id, pod)

    def begin_attempt(self, uid: str) -> str:
        """Begin the scheduling attempt of a pod. Return why the pod is rejected; empty if it is not."""
        member = self.by_uid.get(uid)
        if member is None:
            return ""
        self._known = {}, {}
        gang = member.gang
        if gang.is_released:
            return ""
        error = self.admission_error(member.pod)
        if error or gang.group is None:
            return error
        wave = self.wave
        if wave is None or wave.group is not gang.group or not wave.includes(uid):
            self._end_wave()
            wave = self.wave = next_wave(gang.group, uid)
            gang.group.begins_with(member)
        wave.attempted.add(uid)
        return wave.failure

    def next_pod(self) -> str | None:
        """The uid of the member to be tried next; None if there is no wave, or the wave has just ended."""
        wave = self.wave
        while wave is not None and wave.todo:
            member = self.by_uid.get(wave.todo.popleft())
            if member is None or member.state is not MemberState.PENDING or member.uid in wave.attempted:
                continue
            if member.is_schedulable:
                wave.attempted.add(member.uid)
                return member.uid
        self._end_wave()
        return None

    def attempt_failed(self, uid: str, error: str) -> None:
        """The scheduling attempt of a member failed; ``error`` says why."""
        member = self.by_uid.get(uid)
        if member is None or member.state is not MemberState.PENDING:
            return
        if member.not_bound == _NOT_DONE:
            member.not_bound = error
        if member.gang.is_released:
            return
        gang, group, wave = member.gang, member.gang.group, self.wave_of(uid)
        if group is None or wave is None or wave.failure or wave.permitted:
            return
        group.failed_by(member, error)
        if gang.is_strict:
            wave.failure = (
                f'GangGroup "{group.id}" gets rejected due to member Pod "{member.key}" is unschedulable with reason '
                f'"{error}", alreadyWaitForBound: {len(group.members(MemberState.WAITING))}'
            )
            self._reject_waiting(group, wave.regain or wave.failure)

    def group_of(self, uid: str) -> Group | None:
        """The group with which the pod is placed; None for a pod that is placed by itself."""
        member = self.by_uid.get(uid)
        return member.gang.group if member is not None and not member.gang.is_released else None

    def wave_of(self, uid: str) -> Wave | None:
        """The current attempt if it is one of that group."""
        return self.wave_in(self.group_of(uid))

    def wave_in(self, group: Group | None) -> Wave | None:
        """The current attempt if it is one of the group."""
        return self.wave if self.wave is not None and self.wave.group is group else None

    def permit(self, uid: str) -> float | None:
        """A member was assumed on a node. Return how many seconds at most it waits for the others; or None if it may be
        bound, together with all members that wait. Raises LookupError if the pod's gang is unknown."""
        member = self.by_uid.get(uid)
        if member is None or member.gang.declaration is None or member.gang.group is None:
            raise LookupError("Gang not found")
        member.gang.move(member, MemberState.WAITING)
        member.is_rejected = False
        if not self._may_be_bound(member.gang.group):
            return member.gang.declaration.wait_seconds
        self._allow_waiting(member.gang.group, but=uid)
        return None

    def unreserve(self, uid: str) -> None:
        """The reservation of a member that was assumed on a node was undone."""
        member = self.by_uid.get(uid)
        if member is None or member.state is MemberState.BOUND:
            return
        state, was_rejected = member.state, member.is_rejected
        member.is_rejected, member.bound_with = False, 0
        if state is MemberState.BINDING:
            member.not_bound = _NOT_DONE
        if state is not MemberState.PENDING:
            member.gang.move(member, MemberState.PENDING)
        if was_rejected or member.gang.is_released:
            return
        # When the waiting time of a NonStrict gang is over, all members release their nodes: two gangs that each hold
        # nodes the other needs would otherwise never run.
        gives_up = state is MemberState.WAITING and member.is_schedulable
        if member.gang.is_strict or gives_up:
            why, wave = _UNRESERVED.format(member.gang.id, member.pod.metadata.name), self.wave_of(uid)
            if wave is not None and member.gang.is_strict and not wave.permitted:
                wave.failure = wave.failure or why
            self._reject_waiting(member.gang.group, why)
        self._review(member.gang)

    def bound(self, uid: str) -> None:
        """A member was bound."""
        member = self.by_uid.get(uid)
        if member is not None and member.state is not MemberState.BOUND:
            self._to_bound(member)
            self._review(member.gang)

    # State transitions.

    def _new_gang(self, gang_id: str) -> Gang:
        gang = self.gangs[gang_id] = Gang(gang_id)
        return gang

    def _declare_by(self, member: Member) -> None:
        """Without a PodGroup, the first pod with a valid declaration declares the gang."""
        gang = member.gang
        if gang.declaration is None:
            found = self._declarations.of_pod(gang, member.pod)
            if isinstance(found, Declaration):
                gang.created_at = member.pod.metadata.creation_timestamp
            self._declare(gang, found)

    def _declare_anew(self, gang: Gang, found: Declaration | str) -> None:
        before = gang.declaration
        self._declare(gang, found)
        self._review(gang)
        if before is not None and before != gang.declaration and gang.is_admitted and gang.group is not None:
            # The gang may fit now, for example because its minimum is lower.
            self._activate_pending(gang.group.gangs.values())

    def _declare(self, gang: Gang, declaration: Declaration | str) -> None:
        """``declaration``: or, as a text, why there is none."""
        if isinstance(declaration, str):
            self._undeclare(gang, declaration)
            return
        group = gang.group
        gang.declaration = declaration
        if group is not None and group.ids == declaration.group:
            return
        if group is not None:
            self._leave(gang, group)
        group = self.groups.get(declaration.group_id)
        if group is None:
            known = self._known[1].pop(declaration.group_id, None)
            group = self.groups[declaration.group_id] = known or Group(declaration.group)
            group.gangs.clear()
            for id_ in group.ids:
                self._naming.setdefault(id_, {})[group.id] = group
        group.gangs[gang.id] = gang
        group.once_satisfied |= bool(gang.by_state[MemberState.BOUND])
        gang.group = group

    def _undeclare(self, gang: Gang, why: str) -> None:
        gang.declaration, gang.why_undeclared = None, why
        if gang.group is not None:
            self._leave(gang, gang.group)

    def _leave(self, gang: Gang, group: Group) -> None:
        gang.group, gang.is_admitted = None, False
        del group.gangs[gang.id]
        for member in list(gang.by_state[MemberState.WAITING].values()):
            self._reject(member, f'Gang "{gang.id}" is no more of the group that it waited for')
        if group.gangs:
            return
        del self.groups[group.id]
        for id_ in group.ids:
            naming = self._naming[id_]
            del naming[group.id]
            if not naming:
                del self._naming[id_]
        if self.wave_in(group) is not None:
            self._end_wave()

    def _drop(self, gang: Gang) -> None:
        del self.gangs[gang.id]
        self._declarations.gone(gang)
        if gang.declaration is not None:
            self._undeclare(gang, f"there is no PodGroup {gang.id}")

    def _to_bound(self, member: Member) -> None:
        member.gang.move(member, MemberState.BOUND)
        member.not_bound = ""
        if member.gang.group is not None:
            member.gang.group.once_satisfied = True

    def _join_wave(self, member: Member) -> None:
        """Add a member that is created while its group is being tried to the wave. If the wave has failed already, the
        member begins a new wave, which may succeed; so it does if the wave has a plan, since the plan lacks it."""
        wave = self.wave_in(member.gang.group)
        if wave is not None and not wave.failure and wave.plan is None:
            wave.todo.append(member.uid)

    def _review(self, gang: Gang) -> None:
        """A gang has changed: update whether its pods, and those of the other gangs in its groups, may be tried."""
        groups = self._naming.get(gang.id)
        if not groups:
            gang.is_admitted = False
            return
        for group in groups.values():
            is_ready = all((found := self.gangs.get(id_)) is not None and found.is_complete for id_ in group.ids)
            for member_gang in group.gangs.values():
                is_admitted = is_ready or member_gang.is_released
                if is_admitted and not member_gang.is_admitted:
                    self._activate_pending((member_gang,))
                member_gang.is_admitted = is_admitted
            if any(each.by_state[MemberState.WAITING] for each in group.gangs.values()) and self._may_be_bound(group):
                self._allow_waiting(group)

    def _activate_pending(self, gangs: Iterable[Gang]) -> None:
        for gang in gangs:
            self.instructions.activate += gang.by_state[MemberState.PENDING]

    def _may_be_bound(self, group: Group) -> bool:
        """Whether every gang of the group has enough members with a node."""
        return all((gang := self.gangs.get(id_)) is not None and not gang.missing(self.wave) for id_ in group.ids)

    def _allow_waiting(self, group: Group, *, but: str = "") -> None:
        """Allow the waiting members to be bound. ``but``: the member that is at Permit now, which needs no
        instruction."""
        waiting = group.members(MemberState.WAITING)
        wave = self.wave_in(group)
        bound_with = wave.bound_with(len(waiting)) if wave is not None else len(waiting)
        for member in waiting:
            member.gang.move(member, MemberState.BINDING)
            member.bound_with = bound_with
            if member.uid != but:
                self.instructions.allow.append(member.uid)
        together = {member.uid for member in waiting}
        if wave is not None:
            wave.permitted |= together
            together |= wave.permitted | wave.partners
        group.together = together
        group.succeeded()

    def _reject_waiting(self, group: Group | None, message: str) -> None:
        for member in group.members(MemberState.WAITING) if group is not None else ():
            self._reject(member, message)

    def _reject(self, member: Member, message: str) -> None:
        """Reject a waiting member. It no longer counts as placed, although it keeps its node until it is unreserved."""
        member.is_rejected = True
        member.gang.move(member, MemberState.PENDING)
        self.instructions.reject.append((member.uid, message))

    def _end_wave(self) -> None:
        wave, self.wave = self.wave, None
        if wave is None:
            return
        self.instructions.ended.append(wave)
        if wave.group.is_strict:
            self._reject_waiting(wave.group, wave.failure or ALL_ATTEMPTED)
