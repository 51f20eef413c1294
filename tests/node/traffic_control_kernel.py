"""Traffic control of a kernel that is simulated: it refuses what the kernel refuses."""

from __future__ import annotations

from dataclasses import replace

from koordinator.node.errors import Unavailable
from koordinator.node.traffic_control import (
    ROOT,
    AddressSet,
    KernelFilter,
    Marking,
    Member,
    Qdisc,
    Rule,
    Shaping,
    SourceFilter,
    Step,
    TrafficClass,
    TrafficControlAccess,
    TrafficControlError,
)

_TREE = Qdisc("htb", 1, 2)
_FIRST_HANDLE = 0x80000800


class TrafficControlKernel:
    """One device or several, which start with the qdisc that the kernel makes. Call it to open a connection."""

    def __init__(self, *devices: str) -> None:
        self.devices = {name: Shaping(name, Qdisc("mq", 0)) for name in devices or ("eth0",)}
        self.default = next(iter(self.devices), None)
        """The device of the default route."""
        self.sets: dict[str, set[str]] = {}
        self.rules: list[Rule] = []
        self.missing: Unavailable | None = None
        """What keeps connections from being opened."""
        self.no_iptables: Unavailable | None = None
        self.refuses: type | None = None
        """Steps with things of this kind fail."""
        self.steps: list[str] = []
        """That were done."""
        self.opened = 0
        self.closed = 0

    def __call__(self) -> TrafficControlKernel | Unavailable:
        self.opened += 1
        return self if self.missing is None else self.missing

    @property
    def access(self) -> TrafficControlAccess:
        """For those who use it."""
        return TrafficControlAccess(
            self, lambda: any(each.root == _TREE for each in self.devices.values()), waits=False
        )

    def close(self) -> None:
        self.closed += 1

    def default_device(self) -> str | None:
        return self.default

    def shaping(self, device: str) -> Shaping | None:
        return self.devices.get(device)

    def marking(self, sets: frozenset[str]) -> Marking | Unavailable:
        if self.no_iptables is not None:
            return self.no_iptables
        found = {name: frozenset(members) for name, members in self.sets.items() if name in sets}
        return Marking(found, frozenset(self.rules))

    def do(self, device: str, step: Step) -> None:
        if self.refuses is not None and isinstance(step.thing, self.refuses):
            raise TrafficControlError(f"{step}: Operation not permitted")
        match step.thing:
            case AddressSet() | Member():
                self._do_set(step, step.thing)
            case Rule():
                self._do_rule(step, step.thing)
            case _:
                self._do_device(device, step)
        self.steps.append(str(step))

    def classes(self, device: str = "eth0") -> dict[int, tuple[int, int, int, int]]:
        """Parent, rate, ceil and priority, by minor number."""
        return {each.minor: (each.parent, each.rate, each.ceil, each.priority) for each in self.devices[device].classes}

    def sources(self, device: str = "eth0") -> dict[str, int]:
        """The class of each address that has a filter."""
        means = [each.means for each in self.devices[device].filters]
        return {each.address: each.minor for each in means if isinstance(each, SourceFilter)}

    def _do_device(self, device: str, step: Step) -> None:
        found = self.devices.get(device)
        if found is None:
            raise TrafficControlError(f"{step}: No such device")
        self.devices[device] = _changed(found, step)

    def _do_set(self, step: Step, thing: AddressSet | Member) -> None:
        name = thing.name if isinstance(thing, AddressSet) else thing.set
        present = name in self.sets
        if isinstance(thing, Member):
            if not present or (thing.address in self.sets[name]) == (step.verb == "add"):
                raise TrafficControlError(f"{step}: no such set, or nothing to do")
            (self.sets[name].add if step.verb == "add" else self.sets[name].remove)(thing.address)
        elif step.verb == "add":
            if present:
                raise TrafficControlError(f"{step}: Set cannot be created: set with the same name already exists")
            self.sets[name] = set()
        elif not present or any(rule.set == name for rule in self.rules):
            raise TrafficControlError(f"{step}: Set cannot be destroyed: it is in use by a kernel component")
        else:
            del self.sets[name]

    def _do_rule(self, step: Step, rule: Rule) -> None:
        if step.verb == "add":
            if rule.set not in self.sets:
                raise TrafficControlError(f"{step}: Set {rule.set} doesn't exist.")
            self.rules.append(rule)
        elif rule in self.rules:
            self.rules.remove(rule)
        else:
            raise TrafficControlError(f"{step}: Bad rule (does a matching rule exist in that chain?).")


def _changed(found: Shaping, step: Step) -> Shaping:
    thing, classes = step.thing, {each.minor: each for each in found.classes}
    refused = TrafficControlError(f"{step}: refused")
    if isinstance(thing, Qdisc):
        has_one = found.root is not None and found.root.major != 0
        if has_one == (step.verb == "add"):
            raise refused
        return Shaping(found.device, thing if step.verb == "add" else Qdisc("mq", 0))
    if found.root is None or found.root.kind != "htb":
        raise refused
    if isinstance(thing, TrafficClass):
        if (thing.minor in classes) == (step.verb == "add") or (thing.parent != ROOT and thing.parent not in classes):
            raise refused
        if step.verb == "delete":
            used = {each.means.minor for each in found.filters if isinstance(each.means, SourceFilter)}
            if thing.minor in used:
                raise TrafficControlError(f"{step}: Device or resource busy")
            del classes[thing.minor]
        else:
            classes[thing.minor] = thing
        return replace(found, classes=tuple(classes.values()))
    if isinstance(thing, KernelFilter):
        if thing not in found.filters:
            raise refused
        return replace(found, filters=tuple(each for each in found.filters if each != thing))
    assert not isinstance(thing, AddressSet | Member | Rule)
    if isinstance(thing, SourceFilter) and thing.minor not in classes:
        raise refused
    handle = max((each.handle for each in found.filters), default=_FIRST_HANDLE - 1) + 1
    kind = "u32" if isinstance(thing, SourceFilter) else "cgroup"
    return replace(found, filters=(*found.filters, KernelFilter(thing, kind, 4, 0x0800, handle)))
