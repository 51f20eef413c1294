"""Resource lists of plain pod documents."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.quantity import Quantity

REQUESTS: Final = "requests"
LIMITS: Final = "limits"


def containers(pod: Document, *lists: str) -> Iterator[Document]:
    """The containers in these lists of the spec, such as ``initContainers``."""
    spec = pod.get("spec") or {}
    for name in lists:
        yield from spec.get(name) or ()


def listed(container: Document, part: str) -> Document:
    """The container's requests or limits, for reading."""
    return (container.get("resources") or {}).get(part) or {}


def writable(container: Document, part: str) -> Document:
    """The container's requests or limits, made where they are missing."""
    resources = container.get("resources")
    if resources is None:
        resources = container["resources"] = {}
    found: Document | None = resources.get(part)
    if found is None:
        found = resources[part] = {}
    return found


@lru_cache(maxsize=4096)
def integer_text(amount: int) -> str:
    """A plain number as Kubernetes writes it: 1000 is ``1k``."""
    return str(Quantity.from_value(amount))


def value_of(quantity: Any) -> int:
    """Whole units, rounded away from zero. Raises QuantityError."""
    return Quantity.parse(quantity).value
