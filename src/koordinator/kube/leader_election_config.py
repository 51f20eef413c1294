"""The settings that candidates for one lease must agree on, and the bounds within which they are safe."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from koordinator.base.errors import ConfigurationError

JITTER_FACTOR = 1.2


def make_identity(hostname: str) -> str:
    """Return a unique holder identity: the host's name and a random part, as client-go programs use."""
    return f"{hostname}_{uuid4()}"


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    """Durations in seconds, with client-go's names and defaults."""

    name: str
    namespace: str
    identity: str
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    release_on_cancel: bool = False
    """Release the lease when ``run`` ends, so that another candidate need not wait for its expiry."""

    def __post_init__(self) -> None:
        for field, text in (("name", self.name), ("namespace", self.namespace), ("identity", self.identity)):
            if not text:
                raise ConfigurationError(f"leaderElection.{field}", text, "it must not be empty")
        if int(self.lease_duration) <= self.renew_deadline:
            # The lease contains the duration in whole seconds only.
            allowed = f"its whole seconds must be more than renewDeadline ({self.renew_deadline:g}s)"
            raise ConfigurationError("leaderElection.leaseDuration", self.lease_duration, allowed)
        if self.retry_period <= 0:
            raise ConfigurationError("leaderElection.retryPeriod", self.retry_period, "it must be positive")
        if self.renew_deadline <= JITTER_FACTOR * self.retry_period:
            allowed = f"it must be more than 1.2 times retryPeriod ({self.retry_period:g}s)"
            raise ConfigurationError("leaderElection.renewDeadline", self.renew_deadline, allowed)
