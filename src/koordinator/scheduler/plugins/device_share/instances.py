"""How many devices of each type a pod takes on a node, and the amounts of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from koordinator.api.device_share import APPLY_FOR_ALL, DEVICE_LEVEL, REQUESTS_AS_COUNT
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.plugins.device_share.demand import DeviceDemand, Hint
from koordinator.scheduler.plugins.device_share.node_devices import NodeDevices
from koordinator.scheduler.plugins.device_share.requests import RESOURCE_OF, WHOLE


@dataclass(frozen=True, slots=True)
class Instances:
    """A number of devices of a type, each with these amounts by resource."""

    count: int
    amounts: Mapping[str, int]


def insufficient(device_type: str, *, unresolvable: bool = False) -> Reason:
    """Too few devices; ``unresolvable``: whichever pods leave the node."""
    return Reason(f"Insufficient {device_type} devices", unresolvable)


def instances(
    demand: DeviceDemand, node: NodeDevices, *, leaves_secondary: bool = False
) -> dict[str, Instances] | Reason:
    """By type. ``leaves_secondary``: where the node is planned so that secondary devices fit whenever the primary one
    does, these are omitted."""
    found: dict[str, Instances] = {}
    leaves_secondary = leaves_secondary and node.is_well_planned and demand.gpu is not None and not demand.shares_gpu
    for device_type in demand.requests:
        if leaves_secondary and demand.joint and device_type != demand.joint[0]:
            continue
        if not node.has(device_type):
            return insufficient(device_type, unresolvable=True)
        if RESOURCE_OF.get(device_type) is None:
            assert demand.gpu is not None, "it is set where GPUs are requested"
            found[device_type] = Instances(demand.gpu.per_gpu.count, demand.gpu.amounts)
            continue
        of_type = _of_cards(demand, device_type, node)
        if isinstance(of_type, Reason):
            return of_type
        found[device_type] = of_type
    for device_type in found:
        if demand.hint(device_type).vf_selector is not None and not node.has_functions(device_type):
            return Reason(f"Insufficient {device_type} VirtualFunctions", unresolvable=True)
    return found


def _of_cards(demand: DeviceDemand, device_type: str, node: NodeDevices) -> Instances | Reason:
    """Of RDMA cards and FPGAs."""
    resource, hint = RESOURCE_OF[device_type], demand.hint(device_type)
    amount = demand.requests[device_type][resource]
    if amount > WHOLE and amount % WHOLE == 0:
        return Instances(amount // WHOLE, {resource: WHOLE})
    if hint.strategy == APPLY_FOR_ALL:
        count = len(node.healthy(device_type, hint))
        return Instances(count, {resource: amount}) if count else insufficient(device_type, unresolvable=True)
    if hint.strategy == REQUESTS_AS_COUNT:
        return Instances(amount, {resource: _exclusive_amount(hint)})
    return Instances(1, {resource: amount})


def _exclusive_amount(hint: Hint) -> int:
    return WHOLE if hint.exclusive_policy == DEVICE_LEVEL else 1
