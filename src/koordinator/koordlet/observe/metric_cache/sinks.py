"""Sinks: where samples go beside the metric cache, for whoever keeps them for longer than koordlet does.

A sink is of another package, and found by its entry point (``koordlet.enforce.plugins``). It gets what was measured
since the last time, in batches, so that a file or a request takes many rounds at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.base.loops import Loop
from koordinator.koordlet.observe.metric_cache.kinds import Round
from koordinator.koordlet.observe.metric_cache.ring import RingMetricCache

LONGEST_INTERVAL: Final = 300.0
"""Seconds. What is kept for a sink meanwhile takes memory: a row of a node of 100 pods is some 20 KiB."""
_DEADLINE: Final = 30.0


@dataclass(frozen=True, slots=True)
class Sink:
    """``write`` is called every ``interval`` seconds, and once more at the end, with the name of the node."""

    name: str
    interval: float
    write: Callable[[str, Sequence[Round]], None]


class SinkFeed:
    """Gives one sink what is appended to the metric cache from now on."""

    def __init__(self, sink: Sink, node_name: str, cache: RingMetricCache) -> None:
        self._sink = sink
        self._node_name = node_name
        self._rounds: list[Round] = []
        cache.on_append(lambda at, samples: self._rounds.append(Round(at, samples)))

    @property
    def loop(self) -> Loop:
        async def write() -> None:
            self.write()

        return Loop(f"sink {self._sink.name}", write, self._sink.interval, _DEADLINE)

    def write(self) -> None:
        """What there is. What the sink cannot take is lost to it."""
        rounds, self._rounds = self._rounds, []
        if rounds:
            self._sink.write(self._node_name, rounds)
