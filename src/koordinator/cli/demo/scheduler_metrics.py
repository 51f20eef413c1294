"""What the scheduler counts of its own work, read from its /metrics."""

from __future__ import annotations

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

_KEPT_OFF = "scheduler_pods_kept_off_nodes_total"


async def pods_kept_off(port: int, plugin: str) -> int:
    """How many pods were placed while ``plugin`` kept them off at least one node."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
        text = await response.text()
    return int(
        sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == _KEPT_OFF and sample.labels.get("plugin") == plugin
        )
    )
