"""GPU requests in the form that the scheduler shares cards by: core and memory in percent, and how many cards."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.resource_names import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED
from koordinator.manager.webhook.pod.amounts import (
    LIMITS,
    REQUESTS,
    containers,
    integer_text,
    listed,
    value_of,
    writable,
)

_WHOLE_CARD: Final = 100
_GPU_RESOURCES: Final = frozenset({GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED})


def normalise_device_resources(pod: Document) -> None:
    """Change ``pod`` in place."""
    for container in containers(pod, "containers"):
        requests, limits = listed(container, REQUESTS), listed(container, LIMITS)
        if _GPU_RESOURCES.isdisjoint(requests) and _GPU_RESOURCES.isdisjoint(limits):
            continue
        counted = GPU_SHARED in requests
        if GPU in requests:
            _split(container)
        if not counted:
            _count_cards(container)


def _split(container: Document) -> None:
    amount = integer_text(value_of(listed(container, REQUESTS)[GPU]))
    for part in (REQUESTS, LIMITS):
        amounts = writable(container, part)
        amounts.update({GPU_CORE: amount, GPU_MEMORY_RATIO: amount})
        amounts.pop(GPU, None)


def _count_cards(container: Document) -> None:
    requests = listed(container, REQUESTS)
    percent = value_of(requests.get(GPU_MEMORY_RATIO, requests.get(GPU_CORE, 0)))
    whole = percent > _WHOLE_CARD and percent % _WHOLE_CARD == 0
    cards = integer_text(percent // _WHOLE_CARD if whole else 1)
    for part in (REQUESTS, LIMITS):
        writable(container, part)[GPU_SHARED] = cards
