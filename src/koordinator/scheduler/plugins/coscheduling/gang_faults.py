"""The controller that reports, by events, invalid gang declarations and why the members of a gang are not tried.

A pod that PreEnqueue keeps out of the queue has no scheduling attempt, and so neither an event nor a condition. Without
this controller neither the pod nor the PodGroup would show, for example, that a gang of the group is missing.
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
"""Seconds for which the same must be missing before it is reported: a group's pods and gangs are created one by one."""


class FaultReporter(Protocol):
    """Records events about gangs on the PodGroup or on the pods."""

    def invalid_declaration(self, gang: Gang, problem: str) -> None:
        """A value in the gang's declaration is invalid."""

    def not_admitted(self, gang: Gang, pods: Iterable[Pod], why: str) -> None:
        """PreEnqueue keeps these pods of the gang out of the queue."""


class GangFaultController:
    """Checks all gangs every few seconds, and reports each fault once as long as it lasts."""

    name = "GangFaultController"

    def __init__(self, cache: GangCache, writer: ControllerWriter, reporter: FaultReporter) -> None:
        self._cache = cache
        self._writer = writer
        self._reporter = reporter
        self._problems: dict[str, tuple[str, ...]] = {}
        """Gang -> the problems of its declaration that were reported."""
        self._missing: dict[str, tuple[str, float]] = {}
        """Gang -> what it lacks, and since when, in seconds of the monotonic clock."""
        self._reported: dict[str, tuple[str, set[str]]] = {}
        """Gang -> what it lacks, and the uids of the pods on which that was reported."""

    async def run(self) -> None:
        """Check periodically until cancelled."""
        while True:
            self.look()
            await self._writer.sleep(_PERIOD)

    def look(self) -> None:
        """Report new faults."""
        gangs, now = self._cache.gangs, self._writer.monotonic()
        for known in (self._problems, self._missing, self._reported):
            for gang_id in known.keys() - gangs.keys():
                del known[gang_id]
        for gang in gangs.values():
            self._report_problems(gang)
            self._report_missing(gang, now)

    def _report_problems(self, gang: Gang) -> None:
        problems = gang.declaration.problems if gang.declaration is not None else ()
        reported = self._problems.get(gang.id, ())
        for problem in problems:
            if problem not in reported:
                self._reporter.invalid_declaration(gang, problem)
        self._problems[gang.id] = problems

    def _report_missing(self, gang: Gang, now: float) -> None:
        pending = [] if gang.is_admitted else [*gang.by_state[MemberState.PENDING].values()]
        text = " ".join(what_it_waits_for(self._cache, gang)) if pending else ""
        missing, since = self._missing.get(gang.id, ("", now))
        if text != missing:
            since = now
        self._missing[gang.id] = text, since
        if not text:
            self._reported.pop(gang.id, None)
            return
        if now - since < PATIENCE:
            return
        known_text, uids = self._reported.get(gang.id, ("", set()))
        new = [member.pod for member in pending if text != known_text or member.uid not in uids]
        if new:
            self._reporter.not_admitted(gang, new, text)
            self._reported[gang.id] = text, {member.uid for member in pending}
