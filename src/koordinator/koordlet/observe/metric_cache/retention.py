"""How long koordlet keeps which samples, and the metric cache that keeps them."""

from __future__ import annotations

from typing import Final

from koordinator.base.clock import Clock
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.ring import Retention, RingMetricCache
from koordinator.koordlet.options import Options

_NODE_SECONDS: Final = 1830.0
"""The longest window of the default policy, and a little."""
_POD_SECONDS: Final = 330.0
"""The window over which pods are averaged, and a little."""
_RETENTIONS: Final = {
    kinds.NODE: _NODE_SECONDS,
    kinds.PODS: _POD_SECONDS,
    kinds.MEMORY: _POD_SECONDS,
    kinds.COLD_PAGES: _NODE_SECONDS,
}


def make_metric_cache(options: Options, clock: Clock) -> RingMetricCache:
    """In memory, with a copy on disk if the options name a folder."""
    if options.folders.samples is None:
        return RingMetricCache(_retentions(options), options.cache_bytes)
    # A megabyte, which few nodes need.
    from koordinator.koordlet.observe.metric_cache.sqlite import SQLiteMetricCache

    file = options.folders.samples / "samples.sqlite"
    return SQLiteMetricCache(_retentions(options), options.cache_bytes, file, round(clock.now().timestamp() * 1000))


def _retentions(options: Options) -> dict[str, Retention]:
    intervals = {
        kinds.MEMORY: max(options.memory_interval, options.collect_interval),
        kinds.COLD_PAGES: options.collectors.cold_pages_interval,
    }
    return {
        group: Retention(intervals.get(group, options.collect_interval), seconds)
        for group, seconds in _RETENTIONS.items()
    }
