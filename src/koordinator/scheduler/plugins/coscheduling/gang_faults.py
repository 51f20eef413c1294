"""The controller that tells authors of gangs what is wrong with what they have written, and members why they are not
tried.

A pod that PreEnqueue keeps out of the queue has no attempt, and so neither an event nor a condition: without this
nobody who looks at the pod or the PodGroup would learn that a gang of the group is missing, say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.binding_points import ControllerWriter
from koordinator.scheduler.plugins.coscheduling.explanation import what_it_waits_for
from koordinator.scheduler.plugins.coscheduling.gang import Gang, MemberState
from koordinator.scheduler.plugins.coscheduling.gang_cache import GangCache

_PERIOD: Final = 5.0
PATIENCE: Final = 30.0
"""Seconds for which the same must be missing: pods and gangs of a group come one after another."""


class Authors(Protocol):
    """Who is told, by events."""

    def declared_wrongly(self, gang: Gang, problem: str) -> None:
        """Something in the declaration cannot be used."""

    def kept_out(self, gang: Gang, pods: Iterable[Pod], why: str) -> None:
        """The gang is not tried, nor are these of its pods."""


class GangFaultController:
    """Looks at all gangs every few seconds, and says each thing once while it lasts."""

    name = "GangFaultController"

    def __init__(self, cache: GangCache, writer: ControllerWriter, authors: Authors) -> None:
        self._cache = cache
        self._writer = writer
        self._authors = authors
        self._problems: dict[str, tuple[str, ...]] = {}
        """Gang -> what its author has been told of its declaration."""
        self._missing: dict[str, tuple[str, float]] = {}
        """Gang -> what it lacks, and since when."""
        self._told: dict[str, tuple[str, set[str]]] = {}
        """Gang -> what it lacks, and the uids of the pods whose owners know that."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.look()
            await self._writer.sleep(_PERIOD)

    def look(self) -> None:
        """Tell what is new."""
        gangs, now = self._cache.gangs, self._writer.monotonic()
        for known in (self._problems, self._missing, self._told):
            for gang_id in known.keys() - gangs.keys():
                del known[gang_id]
        for gang in gangs.values():
            self._tell_problems(gang)
            self._tell_what_is_missing(gang, now)

    def _tell_problems(self, gang: Gang) -> None:
        problems = gang.declaration.problems if gang.declaration is not None else ()
        told = self._problems.get(gang.id, ())
        for problem in problems:
            if problem not in told:
                self._authors.declared_wrongly(gang, problem)
        self._problems[gang.id] = problems

    def _tell_what_is_missing(self, gang: Gang, now: float) -> None:
        pending = [] if gang.is_admitted else [*gang.by_state[MemberState.PENDING].values()]
        text = " ".join(what_it_waits_for(self._cache, gang)) if pending else ""
        missing, since = self._missing.get(gang.id, ("", now))
        if text != missing:
            since = now
        self._missing[gang.id] = text, since
        if not text:
            self._told.pop(gang.id, None)
            return
        if now - since < PATIENCE:
            return
        known_text, uids = self._told.get(gang.id, ("", set()))
        new = [member.pod for member in pending if text != known_text or member.uid not in uids]
        if new:
            self._authors.kept_out(gang, new, text)
            self._told[gang.id] = text, {member.uid for member in pending}
