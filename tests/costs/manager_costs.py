"""What koord-manager spends on a report of a node: from the bytes of the watch that show it to what is written for it.

Readings move a little, as they do on a node that is in use, so that nearly all reports change nothing that is due.
"""

from __future__ import annotations

import asyncio
from typing import Final

from benchmarks.manager_cost import Measurement
from tests.costs.call_counter import CallCounter
from tests.costs.figures import Cost

_NODES: Final = 50
_MOST_WRITES: Final = 1
SHAPES: Final[dict[str, int]] = {"report of 30 pods": 30, "report of 10 pods": 10}
"""How many pods a node has."""


def cost(pods_per_node: int) -> Cost:
    """Of one report, in the third minute after the first synchronisation."""
    counter = CallCounter()
    figures = asyncio.run(Measurement(_NODES, pods_per_node).measure(3, counter.counting()))
    assert sum(figures["writes_per_minute"][-1].values()) <= _MOST_WRITES
    return Cost.of(counter.calls, _NODES)
