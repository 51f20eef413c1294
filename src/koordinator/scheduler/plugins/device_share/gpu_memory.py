"""Memory of a GPU in bytes and in percent: a pod requests one of them, and takes both."""

from __future__ import annotations

from collections.abc import Mapping

from koordinator.api.resource_names import GPU_MEMORY, GPU_MEMORY_RATIO
from koordinator.scheduler.plugins.device_share.requests import WHOLE


def with_both_memories(request: Mapping[str, int], total: Mapping[str, int]) -> dict[str, int]:
    """The request to a GPU that has ``total``, with its memory in both units. A percentage is rounded down, so that
    shares that fill the memory together fit."""
    whole = total.get(GPU_MEMORY, 0)
    if GPU_MEMORY_RATIO in request:
        return {GPU_MEMORY: request[GPU_MEMORY_RATIO] * whole // WHOLE, **request}
    if GPU_MEMORY in request:
        return {GPU_MEMORY_RATIO: request[GPU_MEMORY] * WHOLE // whole if whole else 0, **request}
    return dict(request)


def fits(request: Mapping[str, int], total: Mapping[str, int], free: Mapping[str, int]) -> bool:
    """Whether a device with ``total`` has enough free of every requested resource. A resource that it does not name
    counts as 0, except for a unit of memory that is not requested."""
    amounts = with_both_memories(request, total)
    return all(amount <= free.get(name, 0 if name in request else amount) for name, amount in amounts.items())
