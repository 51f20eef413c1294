"""koord-descheduler on a simulated cluster, which may end at any write, or not learn what became of the write."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from koordinator.base.errors import KoordinatorError
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.kube.errors import TransportError
from tests.descheduler.migration.simulated_cluster import Crash, SimulatedCluster


class InterruptedProgram(RuleBasedStateMachine):
    """What happens to the program; subclasses set ``plugin`` when the story begins, and say what it does and what
    everybody else does."""

    args: ClassVar[MigrationControllerArgs]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.cluster = SimulatedCluster()
        self.plugin: Any = None
        """None before the story begins."""

    def teardown(self) -> None:
        try:
            if self.plugin is not None:
                self.finish()
        finally:
            self.runner.close()

    @abstractmethod
    def work_once(self) -> None:
        """As the program does when nothing disturbs it."""

    @abstractmethod
    def finish(self) -> None:
        """How every story ends, with what must hold then."""

    @rule()
    def arbitrate(self) -> None:
        self.run(self.plugin.arbitrator.arbitrate())

    @rule(after=st.integers(0, 7), done=st.booleans(), lost=st.booleans())
    def fail_at_a_write(self, after: int, done: bool, lost: bool) -> None:
        """The program ends at a write, before or after it is ``done``, or does not learn what became of it."""
        left = after
        error: Exception = TransportError("the connection broke") if lost else Crash()

        def fault(verb: str, path: str, is_done: bool) -> Exception | None:
            nonlocal left
            if is_done is not done:
                return None
            left -= 1
            return error if left == -1 else None

        self.cluster.fault = fault
        try:
            self.work_once()
        finally:
            self.cluster.fault = lambda verb, path, done: None

    @rule(seed=st.integers(1, 9))
    def restart(self, seed: int) -> None:
        """Another replica leads."""
        self.plugin = self.cluster.start(self.args, seed)

    @rule()
    def deliver(self) -> None:
        self.cluster.deliver()

    @rule(seconds=st.sampled_from([1, 3]))
    def wait(self, seconds: int) -> None:
        self.runner.run(self.cluster.clock.advance(seconds))

    def run(self, work: Any) -> None:
        try:
            self.runner.run(work)
        except Crash:
            self.plugin = self.cluster.start(self.args)
        except KoordinatorError:
            """Tried again, as the queue does."""
