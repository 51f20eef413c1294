"""How many examples a property test looks at."""

from __future__ import annotations

import os
from typing import Final

_FACTOR: Final = float(os.environ.get("KOORDINATOR_EXAMPLES", "0.25"))
"""`make test` stays quick with a quarter of what a test says: they are the same in every run, and have found what
they can find. `make test-long` looks at ten times as many, and at others in each run."""
_FEWEST: Final = 5


def examples(count: int) -> int:
    """``count`` for a run that is neither quick nor long."""
    return max(_FEWEST, round(count * _FACTOR))
