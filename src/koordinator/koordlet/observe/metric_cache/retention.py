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


def make_metric_cache(options: Options, clock: Clock) -> RingMetricCache:
    """In memory, with a copy on disk if the options name a folder."""
    memory_interval = max(options.memory_interval, options.collect_interval)
    retentions = {
        kinds.NODE: Retention(options.collect_interval, _NODE_SECONDS),
        kinds.PODS: Retention(options.collect_interval, _POD_SECONDS),
        kinds.MEMORY: Retention(memory_interval, _POD_SECONDS),
        kinds.COLD_PAGES: Retention(options.collectors.cold_pages_interval, _NODE_SECONDS),
    }
    if options.folders.samples is None:
        return RingMetricCache(retentions, options.cache_bytes)
    # A megabyte, which few nodes need.
    from koordinator.koordlet.observe.metric_cache.sqlite import SQLiteMetricCache

    file = options.folders.samples / "samples.sqlite"
    return SQLiteMetricCache(retentions, options.cache_bytes, file, round(clock.now().timestamp() * 1000))
