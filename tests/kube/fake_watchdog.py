"""A watchdog on a clock of the test, which counts where the kernel would have killed."""

from __future__ import annotations

from koordinator.base.clock import Clock


class FakeWatchdog:
    """``deadline`` is None while nobody leads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.deadline: float | None = None
        self._strikes: list[float] = []

    @property
    def strikes(self) -> list[float]:
        """The deadlines that passed without a later one, or a stop, in time."""
        self._look()
        return self._strikes

    def end_at(self, deadline: float) -> None:
        self._look()
        self.deadline = deadline

    def stop(self) -> None:
        self._look()
        self.deadline = None

    def _look(self) -> None:
        if self.deadline is not None and self._clock.monotonic() >= self.deadline:
            self._strikes.append(self.deadline)
            self.deadline = None
