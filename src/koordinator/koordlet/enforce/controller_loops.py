"""Runs the extension controllers of other packages, each in a loop of the agent's.

They start when koordlet has its first picture of the pods, and end before anything that they use. A controller that
fails costs itself alone: its loop backs off, and names it in the log, in its heartbeat, in ``/readyz`` and in
``koordlet_plugin_working``; what it desired stays desired, as missing figures never take anything away.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from koordinator.base.deadline import within
from koordinator.base.loops import Loop
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.enforce.controller import ControllerError, NodeAccess
from koordinator.koordlet.enforce.decision_report import DecisionReport
from koordinator.koordlet.enforce.node_snapshot import SnapshotSources, take_snapshot
from koordinator.koordlet.enforce.plugins import GuardedController, checked_decision

logger = logging.getLogger(__name__)

_STARTING: Final = 5.0
"""Seconds for which a call waits for the present round of measuring, beside the controller's own deadline."""
_CLOSING: Final = 5.0


class ControllerLoops:
    """``start`` when ``has_pods``, ``loops`` from then on, ``close`` at the end."""

    def __init__(self, context: AgentContext, sources: SnapshotSources, report: DecisionReport) -> None:
        self._all = [_Runner(each, context, sources, report) for each in context.given.plugins.controllers]
        self._has_started = False
        self.has_pods = asyncio.Event()
        if sources.states.has_synced_pods:
            self.has_pods.set()
        sources.states.on_pods(lambda _: self.has_pods.set())

    def start(self) -> list[Loop]:
        """The loops, which are there from now on."""
        self._has_started = True
        return self.loops()

    def loops(self) -> list[Loop]:
        """Of those that are on; none before ``start``."""
        return [each.loop for each in self._all if self._has_started and each.is_on]

    def reconfigure(self) -> None:
        """Who is off desires nothing any more."""
        for each in self._all:
            if not each.is_on:
                each.withdraw()

    async def close(self) -> None:
        """Let each of them end, after the call that is under way, for some seconds at most."""
        async with asyncio.TaskGroup() as tasks:
            for each in self._all:
                tasks.create_task(each.close(), name=f"end of controller {each.name}")


class _Runner:
    def __init__(
        self, guarded: GuardedController, context: AgentContext, sources: SnapshotSources, report: DecisionReport
    ) -> None:
        self._controller, self._guard = guarded
        self._context = context
        self._sources = sources
        self._report = report
        self._events = context.events.recorder(self.name)
        self._called_at: float | None = None
        """When it was called last."""

    @property
    def name(self) -> str:
        return self._controller.name

    @property
    def is_on(self) -> bool:
        return self._guard.is_on

    @property
    def loop(self) -> Loop:
        deadline = self._controller.deadline + _STARTING
        return Loop(f"controller {self.name}", self._reconcile, self._controller.interval, deadline)

    def withdraw(self) -> None:
        self._sources.executor.submit(self.name, ())
        self._report.forget(self.name)

    async def _reconcile(self) -> None:
        """ControllerError if the controller fails."""
        clock, controller = self._context.given.clock, self._controller
        if self._called_at is not None and self._guard.thread.is_busy:
            raise self._failure(f"has not returned for {clock.monotonic() - self._called_at:.0f} s")
        await self._context.table.is_whole.wait()
        snapshot = take_snapshot(self._sources, with_best_effort=controller.reads_best_effort)
        access = NodeAccess(snapshot, self._sources.usage, self._sources.executor, self._events, self.name)
        self._called_at = clock.monotonic()
        call = self._guard.thread.wait_for(lambda: checked_decision(self.name, controller.reconcile(access)))
        try:
            decision = await within(clock, controller.deadline, call)
        except TimeoutError as error:
            # Its own are TimeoutErrors, too.
            what = f"took longer than {controller.deadline:g} s" if self._guard.thread.is_busy else _raised(error)
            raise self._failure(what) from error
        except Exception as error:
            if self._guard.problem != (what := _raised(error)):
                logger.exception("%s of %s has failed", self.name, self._guard.package)
            raise self._failure(what) from error
        finally:
            access.end()
        self._guard.problem = ""
        self._report.observe(self.name, decision)
        if decision.settings is not None:
            self._sources.executor.submit(self.name, decision.settings)

    def _failure(self, what: str) -> ControllerError:
        self._guard.problem = what
        return ControllerError(f"{self.name} of {self._guard.package} {what}")

    async def close(self) -> None:
        if self._called_at is None or (close := self._controller.close) is None:
            return
        try:
            await within(self._context.given.clock, _CLOSING, self._guard.thread.wait_for(close))
        except Exception:
            # Its own may be TimeoutErrors.
            if self._guard.thread.is_busy:
                logger.warning("%s of %s does not end: it is left behind", self.name, self._guard.package)
            else:
                logger.exception("%s of %s has failed at its end", self.name, self._guard.package)


def _raised(error: Exception) -> str:
    return f"raised {type(error).__name__}: {error}"
