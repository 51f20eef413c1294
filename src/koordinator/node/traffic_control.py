"""The kernel's traffic control of one network device, and how packets get their class: what is read and what is done.

Types only; the kernel itself is in netlink_traffic_control.py. Minor numbers are those of classes ``1:MINOR`` of an HTB
qdisc (tc-htb(8)); rates are bytes per second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from koordinator.node.errors import NodeError, Unavailable

MAJOR: Final = 1
"""Of the qdisc, and of all its classes."""
ROOT: Final = 0
"""As the parent of a class: the qdisc itself."""


class TrafficControlError(NodeError):
    """The kernel, or a program, has refused something."""


@dataclass(frozen=True, slots=True)
class Qdisc:
    """At the root of a device. ``major`` is 0 for the one that the kernel makes by itself; ``default`` is the minor of
    the class for packets without one, which HTB alone has."""

    kind: str
    major: int
    default: int = 0


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """A class of HTB: ``rate`` is guaranteed, up to ``ceil`` is lent; a lower ``priority`` is lent to first."""

    minor: int
    parent: int
    rate: int
    ceil: int
    priority: int


@dataclass(frozen=True, slots=True)
class SourceFilter:
    """Packets from an IPv4 address to the class ``minor``."""

    address: str
    minor: int


@dataclass(frozen=True, slots=True)
class CgroupFilter:
    """Packets of processes to the class that net_cls.classid of their cgroup names."""


@dataclass(frozen=True, slots=True)
class KernelFilter:
    """A filter that is there. ``means`` None: it is of another kind, or matches something else."""

    means: SourceFilter | CgroupFilter | None
    kind: str
    priority: int
    protocol: int
    handle: int


@dataclass(frozen=True, slots=True)
class Shaping:
    """What a device has. ``classes`` and ``filters`` are those of the qdisc ``1:``."""

    device: str
    root: Qdisc | None = None
    classes: tuple[TrafficClass, ...] = ()
    filters: tuple[KernelFilter, ...] = ()


@dataclass(frozen=True, slots=True)
class AddressSet:
    """A set of IPv4 addresses (ipset ``hash:ip``)."""

    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """An address in such a set."""

    set: str
    address: str


@dataclass(frozen=True, slots=True)
class Rule:
    """iptables, table mangle, chain POSTROUTING: packets from addresses of a set to the class ``minor``."""

    set: str
    minor: int


@dataclass(frozen=True, slots=True)
class Marking:
    """How packets get their class before they reach the device: the sets, and the rules that refer to any."""

    sets: Mapping[str, frozenset[str]]
    rules: frozenset[Rule] = frozenset()


Thing = Qdisc | TrafficClass | SourceFilter | CgroupFilter | KernelFilter | AddressSet | Member | Rule
Verb = Literal["add", "change", "delete"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is to be done. Classes alone can be changed; of filters, a KernelFilter can be deleted."""

    verb: Verb
    thing: Thing

    def __str__(self) -> str:
        return f"{self.verb} {_words(self.thing)}"


class TrafficControl(Protocol):
    """One connection with the kernel. Every method may raise TrafficControlError."""

    def default_device(self) -> str | None:
        """The device of the first IPv4 default route; None if there is no such route."""

    def shaping(self, device: str) -> Shaping | None:
        """None if there is no such device."""

    def marking(self, sets: frozenset[str]) -> Marking | Unavailable:
        """Those of ``sets`` that there are, and all rules that are like ours."""

    def do(self, device: str, step: Step) -> None:
        """On ``device``, where the step is of a device."""

    def close(self) -> None:
        """End the connection."""


@dataclass(frozen=True, slots=True)
class TrafficControlAccess:
    """Of one kernel."""

    open: Callable[[], TrafficControl | Unavailable]
    """A new connection, or why there is none. May raise TrafficControlError."""
    has_tree: Callable[[], bool]
    """Whether any device has an HTB qdisc ``1:`` at its root; costs next to nothing. True where that cannot be said."""
    waits: bool = True
    """Whether a connection makes its callers wait, so that it is to be used in a thread."""


def _words(thing: Thing) -> str:
    match thing:
        case Qdisc():
            return f"qdisc {thing.kind} {thing.major}:"
        case TrafficClass():
            return f"class {MAJOR}:{thing.minor:x} with {thing.rate} to {thing.ceil} bytes/s"
        case SourceFilter():
            return f"filter of {thing.address} to class {MAJOR}:{thing.minor:x}"
        case CgroupFilter():
            return "filter by cgroup"
        case KernelFilter():
            what = _words(thing.means) if thing.means is not None else f"filter {thing.kind}"
            return f"{what} (priority {thing.priority}, handle {thing.handle:#x})"
        case AddressSet():
            return f"set {thing.name}"
        case Member():
            return f"{thing.address} of set {thing.set}"
        case Rule():
            return f"iptables rule of set {thing.set} to class {MAJOR}:{thing.minor:x}"
