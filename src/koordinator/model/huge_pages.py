"""The pool of huge pages: memory that is set aside for those who ask for huge pages, and that nobody else gets.

Some amounts of memory contain it: the capacity of a Node, and the system's usage in a NodeMetric. Others do not: the
allocatable of a Node, since the kubelet takes the pool off; the usage of the node and of pods in a NodeMetric; and the
zones of a NodeResourceTopology that tell huge pages by themselves. Who compares one with the other subtracts the pool.
"""

from __future__ import annotations

from collections.abc import Mapping

from koordinator.api.node import Node
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import HUGE_PAGES_PREFIX


def huge_page_pool(node: Node) -> int:
    """Bytes, of all sizes of pages: what the kubelet has taken off the node's allocatable memory."""
    return huge_page_bytes(node.status.capacity)


def huge_page_bytes(resources: Mapping[str, Quantity]) -> int:
    return sum(max(amount.value, 0) for name, amount in resources.items() if name.startswith(HUGE_PAGES_PREFIX))


def without_pool(memory: int, pool: int) -> int:
    """An amount that contains the pool, less the pool; never below 0: the two are not measured at the same time."""
    return max(memory - pool, 0)
