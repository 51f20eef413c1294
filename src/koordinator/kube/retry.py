"""Which failed requests are sent again, and when.

- The server asked for it (429 or 5xx with Retry-After): always, whatever the verb; it says that it did not act.
- The request never left this machine (connection refused, no route, TLS failure): always.
- The connection broke after sending: only if repeating is harmless. A repeated update or delete may then be answered
  409 or 404 although the first attempt succeeded, so callers re-read on those, as they must anyway.
- A create (or JSON patch) whose connection broke is not sent again: it may have been applied, and only its caller
  knows how to find out. The error says so (``TransportError.maybe_applied``).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from koordinator.kube.errors import TransportError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays are seconds. ``attempts`` below count the failures before the one that is asked about."""

    random: random.Random = field(repr=False)
    max_server_retries: int = 10
    max_connection_retries: int = 5
    initial_backoff: float = 0.2
    max_backoff: float = 5.0

    def after_answer(self, status: int, retry_after: float | None, attempts: int) -> float | None:
        """The pause before asking again, or None when the answer stands."""
        if retry_after is None or not (status == 429 or status >= 500) or attempts >= self.max_server_retries:
            return None
        # Spread over a tenth more: all whom an overloaded server sends away come back otherwise at the same moment.
        return retry_after * self.random.uniform(1.0, 1.1)

    def after_error(self, error: TransportError, *, repeatable: bool, attempts: int) -> float | None:
        """The pause before connecting again, or None when the error stands."""
        if attempts >= self.max_connection_retries or (error.maybe_applied and not repeatable):
            return None
        ceiling = min(self.max_backoff, self.initial_backoff * float(2**attempts))
        return ceiling * self.random.uniform(0.5, 1.0)
