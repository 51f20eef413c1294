"""``status.qosClass`` of a pod, as Kubernetes derives it from requests and limits of cpu and memory."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.quantity import Quantity

_COMPUTE: Final = ("cpu", "memory")


def qos_class(spec: Document) -> str:
    """``Guaranteed``, ``Burstable`` or ``BestEffort``."""
    if spec.get("resources"):
        holders = [spec["resources"]]
    else:
        containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
        holders = [container.get("resources") or {} for container in containers]
    asked = [(_positive(holder.get("requests")), _positive(holder.get("limits"))) for holder in holders]
    if not any(requests or limits for requests, limits in asked):
        return "BestEffort"
    guaranteed = all(limits.keys() == set(_COMPUTE) and requests == limits for requests, limits in asked)
    return "Guaranteed" if guaranteed else "Burstable"


def _positive(amounts: Document | None) -> dict[str, Quantity]:
    parsed = {name: Quantity.parse(text) for name, text in (amounts or {}).items() if name in _COMPUTE}
    return {name: quantity for name, quantity in parsed.items() if quantity}
