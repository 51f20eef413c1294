"""Allocates a node's devices to a pod, so many of each type with the same amounts: a pure function of the node's
devices and the demand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from koordinator.api.device import GPU
from koordinator.api.device_share import APPLY_FOR_ALL, DEVICE_LEVEL, REQUESTS_AS_COUNT
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.plugins.device_share.allocation import DeviceAllocations, HeldDevice, Share, allocations_of
from koordinator.scheduler.plugins.device_share.demand import (
    RESOURCE_OF,
    WHOLE,
    DeviceDemand,
    Hint,
    fits,
    with_both_memories,
)
from koordinator.scheduler.plugins.device_share.gpu_allocator import DeviceScorer, GPUAllocator
from koordinator.scheduler.plugins.device_share.node_devices import Candidates, NodeDevices


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
    if node.planned != "true" or demand.gpu is None or demand.shares_gpu:
        leaves_secondary = False
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


NO_PRIMARY = Reason("node(s) Insufficient primary device")
NOT_TOGETHER = Reason("node(s) Device Joint-Allocate rules violation")
NO_TEMPLATE = Reason("no matched GPU shared resource template", unresolvable=True)


def closed(device_type: str) -> Reason:
    """Of devices that nobody knows whether they are free; a pod that leaves the node may open them."""
    return Reason(f"node(s) had {device_type} devices held by a pod whose allocation record cannot be read")


Templates = Mapping[str, Collection[str]]
"""``vendor-model`` -> the names of the templates that equal the pod's request for a GPU."""
_Devices = list[HeldDevice]


@dataclass(frozen=True, slots=True)
class Allocator:
    """Allocates for one pod on one node. ``labels`` are the node's; ``templates`` is None unless shares have to be
    templates."""

    demand: DeviceDemand
    node: NodeDevices
    labels: Mapping[str, str]
    scorer: DeviceScorer
    templates: Templates | None = None
    model: str = ""
    """``vendor-model`` of the node."""

    def allocate(self, share: Share) -> DeviceAllocations | Reason:
        """The pod's devices, never none, or the reason why it gets none."""
        wanted = instances(self.demand, self.node, leaves_secondary=share.leaves_secondary)
        if isinstance(wanted, Reason):
            return wanted
        if self.node.closed:
            for device_type in wanted:
                if device_type in self.node.closed:
                    return closed(device_type)
        found = self._together(wanted, share) if len(wanted) > 1 and self.demand.joint else {}
        if isinstance(found, Reason):
            return found
        for device_type, each in wanted.items():
            if device_type not in found:
                devices = self._of_type(device_type, each, share, each.count)
                if isinstance(devices, Reason):
                    return devices
                found[device_type] = devices
        return allocations_of(found)

    def _together(self, wanted: Mapping[str, Instances], share: Share) -> dict[str, _Devices] | Reason:
        """The primary devices, and the others near them."""
        primary, *others = [each for each in self.demand.joint if each in wanted]
        devices = self._of_type(primary, wanted[primary], share, wanted[primary].count)
        if isinstance(devices, Reason):
            return devices
        if not devices:
            return NO_PRIMARY
        switches = self._switches(primary, devices)
        found = {primary: devices}
        for device_type in others:
            near = self._near(device_type, wanted[device_type], share, switches)
            if isinstance(near, Reason):
                return near
            found[device_type] = near
            if self.demand.same_pcie and self._switches(device_type, near) != switches:
                return NOT_TOGETHER
        return found

    def _near(self, device_type: str, each: Instances, share: Share, switches: frozenset[str]) -> _Devices | Reason:
        """One device for each switch, or as many as are requested if these are more. Fewer than one for each switch
        suffice unless all have to be on the same switches."""
        most = max(each.count, len(switches))
        least = Instances(most, each.amounts) if self.demand.same_pcie else each
        return self._of_type(device_type, least, share, most, switches)

    def _switches(self, device_type: str, devices: Sequence[HeldDevice]) -> frozenset[str]:
        return self.node.switches(device_type, [each.minor for each in devices])

    def _of_type(
        self,
        device_type: str,
        wanted: Instances,
        share: Share,
        most: int,
        switches: frozenset[str] = frozenset(),
    ) -> _Devices | Reason:
        """At least the requested number of devices, and at most ``most``; those on ``switches`` first."""
        candidates = self.node.candidates(device_type, self.demand.hint(device_type), share)
        if device_type == GPU:
            return self._gpus(wanted, candidates, share, most)
        return self._any(device_type, wanted, candidates, share, most, switches)

    def _gpus(self, wanted: Instances, candidates: Candidates, share: Share, most: int) -> _Devices | Reason:
        assert self.demand.gpu is not None, "it is set where GPUs are requested"
        template = ""
        if self.templates is not None:
            names = self.templates.get(self.model, ())
            if not names:
                return NO_TEMPLATE
            template = next(iter(names)) if len(names) == 1 else ""
        allocator = GPUAllocator(self.demand.gpu, self.node, self.labels, candidates, self.scorer)
        minors = (None if template else allocator.by_partition()) or allocator.by_topology()
        if isinstance(minors, Reason):
            return minors
        if minors is None:
            devices = self._any(GPU, wanted, candidates, share, most, frozenset())
        else:
            devices = [
                self._held(minor, with_both_memories(wanted.amounts, candidates.total[minor])) for minor in minors
            ]
        if isinstance(devices, Reason) or not template:
            return devices
        return [each._replace(template=template) for each in devices]

    def _any(
        self,
        device_type: str,
        wanted: Instances,
        candidates: Candidates,
        share: Share,
        most: int,
        switches: frozenset[str],
    ) -> _Devices | Reason:
        """Devices that have enough left, the best ones first."""
        hint, found = self.demand.hint(device_type), list[HeldDevice]()
        for minor in self._in_order(device_type, wanted, candidates, share, switches):
            amounts = self._amounts(device_type, wanted, candidates, minor)
            if not fits(wanted.amounts, candidates.total[minor], candidates.free[minor]):
                continue
            functions: tuple[tuple[int, str], ...] = ()
            if hint.vf_selector is not None:
                function = self.node.free_function(device_type, minor, hint, self._designated(device_type, minor))
                if function is None:
                    continue
                functions = (function,)
            found.append(self._held(minor, amounts, functions))
            if len(found) == most:
                break
        return found if len(found) >= wanted.count else insufficient(device_type)

    @staticmethod
    def _amounts(device_type: str, wanted: Instances, candidates: Candidates, minor: int) -> Mapping[str, int]:
        if device_type != GPU:
            return wanted.amounts
        return with_both_memories(wanted.amounts, candidates.total[minor])

    def _in_order(
        self,
        device_type: str,
        wanted: Instances,
        candidates: Candidates,
        share: Share,
        switches: frozenset[str],
    ) -> list[int]:
        """Preferred devices first; then one for each of ``switches``, another one for each, and so on."""
        preferred = share.preferred.get(device_type, ())

        def rank(minor: int) -> tuple[bool, int, int]:
            amounts = self._amounts(device_type, wanted, candidates, minor)
            score = self.scorer.score(amounts, candidates.total[minor], candidates.free[minor])
            return minor not in preferred, -score, minor

        ordered = sorted(candidates.free, key=rank)
        if preferred or not switches:
            return ordered
        seen: dict[str, int] = {}
        turns: dict[int, int] = {}
        for minor in ordered:
            near = switches & self.node.switches(device_type, (minor,))
            if near:
                switch = min(near)
                turns[minor] = seen[switch] = seen.get(switch, 0) + 1
        return sorted(ordered, key=lambda minor: turns.get(minor, len(ordered) + 1))

    def _designated(self, device_type: str, minor: int) -> Collection[str] | None:
        """The only usable addresses of virtual functions; None if any is usable."""
        for each in dict(self.demand.designated).get(device_type, ()):
            if each.minor == minor and each.vfs:
                return [bus_id for _, bus_id in each.vfs]
        return None

    def _held(self, minor: int, amounts: Mapping[str, int], functions: tuple[tuple[int, str], ...] = ()) -> HeldDevice:
        return HeldDevice(minor, tuple(sorted(amounts.items())), vfs=functions)
