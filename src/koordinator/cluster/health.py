"""What the health endpoints ask: the store, and each of the server's own loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """``why`` tells what is wrong; empty text when nothing is."""

    name: str
    why: Callable[[], str]


def _answers() -> str:
    """Whoever hears it has reached the server."""
    return ""


PING = HealthCheck("ping", _answers)


@dataclass(frozen=True, slots=True)
class Health:
    """The checks of each endpoint, in the order in which they are told."""

    live: Sequence[HealthCheck] = (PING,)
    """What a new start of the server may cure. A store that cannot write is not among it: it goes on by itself when its
    disk does, and reads are served meanwhile."""
    ready: Sequence[HealthCheck] = (PING,)

    def of(self, endpoint: str) -> Sequence[HealthCheck]:
        """``livez``, ``readyz`` or ``healthz``."""
        return self.live if endpoint == "livez" else self.ready
