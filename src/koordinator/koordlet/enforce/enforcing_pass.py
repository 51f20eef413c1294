"""Once a second: what is due decides on one picture of the node, and then the executor applies what was decided.

Strategies and runtime hooks are rows of one table. Each has its interval; the hooks are also due when what they go by
has changed. One that fails is left out for a while that doubles, and keeps no other from its turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.base.loops import Heartbeat, LoopMetrics
from koordinator.koordlet.enforce.decision_report import DecisionReport
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.hooks.reconciler import Reconciler
from koordinator.koordlet.enforce.strategies.snapshot import Snapshot, Strategy

logger = logging.getLogger(__name__)

HOOKS: Final = "runtime hooks"
_LONGEST_INTERVAL: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
"""Seconds."""
_LOOKING_SECONDS: Final = 0.03
"""So long a step reads files: container runtimes wait for an answer meanwhile, two seconds at most, and on a busy node
a process that has used its turn waits a tenth of a second for its next one."""
_GOES_ON: Final = 20
"""How often a pass goes on with what it has left before the strategies have their turn again."""


@dataclass(slots=True)
class _Row:
    name: str
    interval: float
    heartbeat: Heartbeat
    due: float = -inf
    failures: int = 0


class EnforcingPass:
    """Go through ``steps`` every ``interval`` seconds, call ``wake`` when pods or policies have changed, and go through
    ``woken_steps`` when ``is_woken``; never through both at a time."""

    def __init__(
        self,
        strategies: Sequence[Strategy],
        hooks: Reconciler,
        hook_interval: float,
        take_snapshot: Callable[[bool], Snapshot],
        executor: Executor,
        report: DecisionReport,
        loops: LoopMetrics,
        clock: Clock,
    ) -> None:
        """``take_snapshot`` is called with whether a strategy reads the folders of best-effort pods. A strategy without
        an interval is off; hooks without one are called when something has changed alone."""
        self._take_snapshot = take_snapshot
        self._executor = executor
        self._hooks = hooks
        self._report = report
        self._clock = clock
        self._loops = loops
        self._rows = [self._row(each) for each in strategies if each.interval > 0]
        self._hooks_row = _Row(HOOKS, hook_interval or inf, loops.loop(HOOKS))
        self._last_hooks = -inf
        self.is_woken = asyncio.Event()

    @property
    def interval(self) -> float:
        """Seconds."""
        return min([_LONGEST_INTERVAL, self._hooks_row.interval, *(row.interval for _, row in self._rows)])

    def replace(self, strategies: Sequence[Strategy]) -> None:
        """These strategies from now on, not while a pass is under way. Who is not among them any more desires nothing,
        as after a restart."""
        before = {row.name: row for _, row in self._rows}
        self._rows = [self._row(each, before.pop(each.name, None)) for each in strategies if each.interval > 0]
        for name in before:
            self._executor.submit(name, ())
            self._loops.forget(name)
        self.wake()

    def _row(self, strategy: Strategy, before: _Row | None = None) -> tuple[Strategy, _Row]:
        if before is None:
            return strategy, _Row(strategy.name, strategy.interval, self._loops.loop(strategy.name))
        before.interval, before.due = strategy.interval, -inf
        return strategy, before

    def steps(self) -> Iterator[None]:
        """What is due now, in steps between which others may have their turn."""
        now = self._clock.monotonic()
        if due := [each for each in self._rows if each[1].due <= now]:
            for _ in self._decide(due):
                yield
        may_go_on = yield from self._apply(with_hooks=self._hooks_row.due <= now)
        for _ in range(_GOES_ON):
            if not may_go_on:
                break
            yield
            may_go_on = self._executor.apply(look_for=_LOOKING_SECONDS).may_go_on

    def run_everything(self) -> None:
        """Whatever is due, without letting anybody have a turn."""
        for _ in (*self._decide(self._rows), *self._apply(with_hooks=True, look_for=inf)):
            pass

    def wake(self) -> None:
        """The hooks are due: at once, unless they were called in the last second, when the next pass calls them. So a
        container that ends again and again costs no more than one call of them a second."""
        self._hooks_row.due = -inf
        if self._clock.monotonic() - self._last_hooks >= self.interval:
            self.is_woken.set()

    def woken_steps(self) -> Iterator[None]:
        """The hooks, if no pass has called them since they were woken."""
        self.is_woken.clear()
        if self._hooks_row.due <= self._clock.monotonic():
            yield from self._apply(with_hooks=True)

    def _apply(self, *, with_hooks: bool, look_for: float = _LOOKING_SECONDS) -> Generator[None, None, bool]:
        """Whether something was left that may be done at once."""
        if with_hooks:
            self._last_hooks = self._clock.monotonic()
            yield from self._attempt(self._hooks_row, self._hooks.submit)
        applied = self._executor.apply(look_for=look_for)
        if with_hooks:
            self._hooks.after_apply()
        return applied.may_go_on

    def _decide(self, due: Sequence[tuple[Strategy, _Row]]) -> Iterator[None]:
        snapshot = self._take_snapshot(any(strategy.reads_best_effort for strategy, _ in due))
        for strategy, row in due:
            yield from self._attempt(row, partial(self._submit, strategy, snapshot))
        yield

    def _submit(self, strategy: Strategy, snapshot: Snapshot) -> Iterator[None]:
        yield
        decision = strategy.decide(snapshot)
        self._report.observe(strategy.name, decision)
        if decision.settings is not None:
            self._executor.submit(strategy.name, decision.settings)

    def _attempt(self, row: _Row, steps: Callable[[], Iterator[None]]) -> Iterator[None]:
        now = self._clock.monotonic()
        # In step with the passes, which are a little more than their interval apart; before the steps, between which
        # it may be woken again.
        row.due = now + row.interval - self.interval / 2 if row.interval > self.interval else -inf
        try:
            with row.heartbeat.iteration():
                yield from steps()
        except Exception as error:
            row.failures += 1
            row.due = now + min(max(row.interval, 1.0) * 2 ** min(row.failures, 5), _LONGEST_PAUSE)
            # What is wrong with the node is said in a line; anything else is a fault of the program.
            is_known = isinstance(error, KoordinatorError)
            logger.warning("%s: %s", row.name, error, exc_info=None if is_known else error)
            return
        row.failures = 0
