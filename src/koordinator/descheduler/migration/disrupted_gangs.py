"""Takes the rest of a gang that a disruption has left too small, whoever the disruption came from.

koordlet, the kubelet, preemption and other clients evict single pods: an agent cannot see the members on other nodes.
What they have in common is the condition DisruptionTarget, which the API server sets for each eviction; a pod that its
owner deletes has none. When the members that are left are fewer than the gang needs, they do no work, and are evicted
so that the gang is placed anew as a whole: all of them, or none if one of them must not be evicted, or while
PodDisruptionBudgets do not let all of them go.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from koordinator.api.kinds import PODS
from koordinator.api.pod import Pod
from koordinator.descheduler.eviction_pipeline import Policy
from koordinator.descheduler.framework import Handle
from koordinator.descheduler.gangs import Gang
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.descheduler.migration.evictors import EvictionRefusedError, PodEvictor
from koordinator.descheduler.migration.gangs import MovingGangs
from koordinator.descheduler.migration.job_status import is_terminal
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.descheduler.pod_facts import disruption_of
from koordinator.kube.event_series import reference_to
from koordinator.kube.reconciler import Reconcilers
from koordinator.model.gang_declaration import gang_id_of

logger = logging.getLogger(__name__)

TRIGGER: Final = "evictDisruptedGangs"
_DEADLINE: Final = 120.0
"""Seconds for one gang."""
_AGAIN: Final = 10.0
"""Seconds after which a gang is looked at again that cannot leave yet, or has not been placed anew."""
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


class _Loss(NamedTuple):
    """A gang has lost members. ``since``: when the first of them began to leave; what was created later replaces them,
    and is not evicted because of them. ``born``: when the last of them had been created."""

    since: datetime
    born: datetime

    def with_another(self, since: datetime, born: datetime) -> _Loss:
        """After a pod that was created at ``born`` began to leave at ``since``, too. One that replaced members is
        another loss, and those that left before it was created are no part of that, in whatever order they are seen."""
        if born >= self.since:
            return _Loss(since, born)
        return _Loss(min(since, self.since), max(born, self.born)) if since > self.born else self


class DisruptedGangs:
    """Works while ``run`` runs, on the pods that end then; what was gone before is not seen."""

    def __init__(
        self,
        handle: Handle,
        reconcilers: Reconcilers,
        cluster: MigrationLister,
        gangs: MovingGangs,
        evictor: PodEvictor,
        forbidden: Policy,
        args: MigrationControllerArgs,
    ) -> None:
        """``forbidden`` says why a pod must not be evicted, however long one waits."""
        self._recorder, self._clock = handle.recorder, handle.clock
        self._cluster, self._gangs, self._evictor = cluster, gangs, evictor
        self._forbidden, self._args = forbidden, args
        self._losses: dict[str, _Loss] = {}
        """By the id of a gang that may be too small: until it is whole again, or gone."""
        self._evicted: set[str] = set()
        """The uids of pods that were evicted here, and are there still."""
        self._said: dict[str, str] = {}
        """Id of a gang -> what keeps it where it is, as the last event says, or in a dry run what would be evicted."""
        self._reconciler = reconcilers.make("disrupted gangs", self.reconcile, self._known, deadline=_DEADLINE)
        cluster.pods.add_handlers(
            name="disrupted gangs",
            on_add=lambda pod, _: self._look(pod),
            on_update=lambda _, pod: self._look(pod),
            on_delete=self._look_last,
        )

    async def run(self) -> None:
        """Work until cancelled; may be called again afterwards."""
        self._losses.clear()
        self._note_all()
        await self._reconciler.run()

    def intentions(self) -> list[str]:
        """What would be done about each gang."""
        self._note_all()
        found = [(gang_id, self._left(gang_id)) for gang_id in self._known()]
        return [
            f"gang {gang_id}, which has lost members: {self._refusal(left) or 'evict what is left'}"
            for gang_id, left in found
            if left is not None and left.members
        ]

    async def reconcile(self, gang_id: str) -> float | None:
        """Evict what is left of the gang, if it is too little. Returns after how many seconds it has to be looked at
        again: no event says that it is whole."""
        left = self._left(gang_id)
        if left is None:
            self._losses.pop(gang_id, None)
            self._said.pop(gang_id, None)
            return None
        if problem := self._refusal(left):
            self._say(left, problem)
            return _AGAIN
        if self._args.dry_run:
            self._log(left)
            return _AGAIN
        for member in left.members:
            try:
                await self._evict(left, member)
            except EvictionRefusedError as error:
                self._say(left, f"{member.metadata.key}: {error}")
                break
        return _AGAIN

    def _known(self) -> Iterable[str]:
        return sorted(self._losses)

    def _note_all(self) -> None:
        for pod in self._cluster.pods.list():
            self._note(pod)

    def _note(self, pod: Pod) -> str:
        """Note that a gang loses a member, unless jobs or this controller see to the others; the id of the gang."""
        gang_id, metadata = gang_id_of(pod), pod.metadata
        condition = disruption_of(pod)
        if not gang_id or condition is None or metadata.uid in self._evicted or self._cluster.own_jobs_of(pod):
            return ""
        at, created = condition.last_transition_time or self._clock.now(), metadata.creation_timestamp or _EARLIEST
        known = self._losses.get(gang_id)
        self._losses[gang_id] = known.with_another(at, created) if known is not None else _Loss(at, created)
        return gang_id

    def _look(self, pod: Pod) -> None:
        # Whoever waits to lead notes nothing that nobody would clear.
        if self._reconciler.is_running and (gang_id := self._note(pod)):
            self._reconciler.add(gang_id)

    def _look_last(self, pod: Pod) -> None:
        self._look(pod)
        self._evicted.discard(pod.metadata.uid)

    def _left(self, gang_id: str) -> Gang | None:
        """The members that have lost too many of those with which they ran, and have not been evicted: none of a gang
        that jobs move. None for a gang that is whole again, or has gone."""
        gang, loss = self._gangs.left_of(gang_id), self._losses.get(gang_id)
        if gang is None or loss is None or not self._gangs.pods_of(gang_id):
            return None
        if any(not is_terminal(job) for member in gang.members for job in self._cluster.own_jobs_of(member)):
            return Gang(gang_id, ())
        staying = [member for member in gang.members if member.metadata.uid not in self._evicted]
        created = ((member, member.metadata.creation_timestamp) for member in staying)
        return Gang(gang_id, tuple(member for member, at in created if at is not None and at < loss.since))

    def _refusal(self, gang: Gang) -> str:
        """Why the gang cannot leave; empty if it can."""
        for member in gang.members:
            if refusals := self._forbidden(member):
                return f"{member.metadata.key}: {'; '.join(refusals)}"
        return self._gangs.budget_problem(gang.members)

    async def _evict(self, gang: Gang, member: Pod) -> None:
        policy, options = self._args.eviction_policy, self._args.default_delete_options
        self._evicted.add(member.metadata.uid)
        try:
            await self._evictor.evict(member, policy, options, TRIGGER, _reason(gang), actor=f"Gang/{gang.id}")
        except EvictionRefusedError:
            self._evicted.discard(member.metadata.uid)
            raise

    def _say(self, gang: Gang, problem: str) -> None:
        """Record an event about the first member, once for each problem."""
        if self._is_new(gang, problem):
            note = f"gang {gang.id} has lost members, and cannot leave whole: {problem}"
            self._recorder.event(reference_to(PODS, gang.members[0]), "Warning", "GangDisrupted", "Evicting", note)

    def _log(self, gang: Gang) -> None:
        """What a dry run would evict."""
        keys = ", ".join(member.metadata.key for member in gang.members)
        if keys and self._is_new(gang, keys):
            logger.info("would evict %s: %s", keys, _reason(gang))

    def _is_new(self, gang: Gang, text: str) -> bool:
        """Whether it is not what was said about the gang before."""
        before, self._said[gang.id] = self._said.get(gang.id), text
        return text != before


def _reason(gang: Gang) -> str:
    return f"gang {gang.id} has lost members, and the {len(gang.members)} that are left are too few"
