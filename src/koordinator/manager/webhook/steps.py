"""The steps of one admission as a handler names them, so that whoever has a clock can measure each."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from koordinator.manager.webhook.admission import Operation


class Steps(Protocol):
    """Told of every step; a step that raises has refused the request."""

    def step(self, operation: Operation, plugin: str) -> AbstractContextManager[None]: ...


class Unmeasured:
    """For those who do not measure."""

    def step(self, operation: Operation, plugin: str) -> AbstractContextManager[None]:
        return nullcontext()


UNMEASURED = Unmeasured()
