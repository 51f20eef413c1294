"""What is shown of the devices of nodes: documents for services and ``koord explain``, and a metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordinator.api.device_share import device_quantity
from koordinator.scheduler.engine.allocations import closed_by
from koordinator.scheduler.plugins.device_share.allocation import WHATEVER_IS_FREE, ByType, amounts_held, summed
from koordinator.scheduler.plugins.device_share.demand import NO_HINT
from koordinator.scheduler.plugins.device_share.node_devices import NodeDevices


def node_device_summary(node: NodeDevices) -> dict[str, Any]:
    """The original's document: sums by resource, amounts by device, and the pods that hold them."""
    used = {
        device_type: {minor: dict(amounts) for minor, amounts in minors.items()}
        for device_type, minors in node.used.items()
    }
    total = {
        device_type: {**{minor: {} for minor in used.get(device_type, {})}, **node.total.get(device_type, {})}
        for device_type in {**node.total, **used}
    }
    free = {
        device_type: {
            minor: _left(amounts, used.get(device_type, {}).get(minor, {})) for minor, amounts in minors.items()
        }
        for device_type, minors in total.items()
    }
    holders: dict[str, dict[str, Any]] = {device_type: {} for device_type in used}
    for uid, allocations in node.held.items():
        for device_type, minors in amounts_held(allocations).items():
            holders.setdefault(device_type, {})[node.holders[uid].key] = _texts(minors)
    return {
        "deviceTotal": _sums(total),
        "deviceFree": _sums(free),
        "deviceUsed": _sums(used),
        "deviceTotalDetail": _details(total),
        "deviceFreeDetail": _details(free),
        "deviceUsedDetail": _details(used),
        "allocateSet": holders,
    }


def explained_devices(node: NodeDevices) -> dict[str, Any]:
    """The document of ``koord explain node``: of each device the total and the free amounts."""
    return {
        "devices": [
            {
                "type": device_type,
                "minor": minor,
                "total": _amounts(total),
                "free": _amounts(candidates.free[minor]),
            }
            for device_type in sorted(node.total)
            for candidates in (node.candidates(device_type, NO_HINT, WHATEVER_IS_FREE),)
            for minor, total in sorted(candidates.total.items())
        ],
        **({"fault": node.fault} if node.fault else {}),
        **closed_by(node.closed.of_holders),
    }


def _left(total: Mapping[str, int], used: Mapping[str, int]) -> dict[str, int]:
    """By resource, 0 where more is used than there is."""
    return {name: max(0, total.get(name, 0) - used.get(name, 0)) for name in {**total, **used}}


def _sums(amounts: ByType) -> dict[str, str]:
    return _amounts(summed(each for minors in amounts.values() for each in minors.values()))


def _details(amounts: ByType) -> dict[str, Any]:
    return {device_type: _texts(minors) for device_type, minors in sorted(amounts.items())}


def _texts(minors: Mapping[int, Mapping[str, int]]) -> dict[str, dict[str, str]]:
    return {str(minor): _amounts(amounts) for minor, amounts in sorted(minors.items())}


def _amounts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(device_quantity(name, amount)) for name, amount in sorted(amounts.items())}
