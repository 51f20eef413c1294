"""Traffic control of the kernel that koordlet runs on: by netlink, but for the rules of iptables.

pyroute2 is imported when a connection is opened, since it takes some 16 MiB. It has to be taught cgroup filters.
There is no library for rules of iptables: the kernel has two implementations of them, and the program ``iptables``
of the node knows which one is in use.
"""

from __future__ import annotations

import importlib
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from struct import Struct
from types import SimpleNamespace
from typing import Any, Final, cast

from koordinator.node.errors import Unavailable
from koordinator.node.netlink_messages import NLM_F_DUMP, NLMSG_DONE, NLMSG_ERROR, messages, request
from koordinator.node.traffic_control import (
    MAJOR,
    ROOT,
    AddressSet,
    CgroupFilter,
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

PACKAGE: Final = "pyroute2"
NEEDS: Final = "pip install 'koordinator[network]'"
_QDISC: Final = MAJOR << 16
_TC_ROOT: Final = 0xFFFFFFFF
_IPV4: Final = 0x0800
"""ETH_P_IP."""
_CGROUP_PRIORITY: Final = 1
_CGROUP_HANDLE: Final = 2
_SOURCE_PRIORITY: Final = 4
_SOURCE_OFFSET: Final = 12
"""Of the source address in the header of an IPv4 packet."""
_U32_TABLE_MASK: Final = 0xFFF
"""The part of an u32 filter's handle that a table of filters, which is listed like a filter, has 0 in."""
_U32_SELECTOR_BYTES: Final = 20
"""Of the attribute before its keys, with its header."""
_U32_KEY: Final = Struct("=4s4sii")
"""Mask, value, offset, mask of the offset."""
_SET_KIND: Final = "hash:ip"
_LOWEST_BURST: Final = 1600
"""Bytes: one packet."""
_BURSTS_PER_SECOND: Final = 10_000
_QUANTA_PER_SECOND: Final = 10
_LOWEST_QUANTUM: Final = 1514
_HIGHEST_QUANTUM: Final = 200_000
_QDISC_HEADER: Final = Struct("=IiIII")
"""Family, device, handle, parent, information."""
_RTM_GETQDISC: Final = 38
_LONGEST: Final = 1 << 16
_TABLE: Final = ("-w", "5", "-t", "mangle")
_CHAIN: Final = "POSTROUTING"
_SECONDS: Final = 10.0

Run = Callable[[tuple[str, ...]], tuple[int, str, str]]
"""Runs ``iptables`` with arguments: exit status, stdout and stderr. OSError or subprocess.SubprocessError."""


@dataclass(frozen=True, slots=True)
class _Library:
    """What is used of pyroute2."""

    route: Any
    """A class: a connection for devices, routes and traffic control."""
    sets: Any
    """A class: a connection for ipsets."""
    error: type[Exception]


class NetlinkTrafficControl:
    """For use in one thread."""

    def __init__(self, library: _Library, iptables: Run | None) -> None:
        """``iptables`` None: it is not installed."""
        self._library = library
        self._iptables = iptables
        with self._refused("netlink"):
            self._route = library.route()
        self._sets: Any = None

    def close(self) -> None:
        """End the connections."""
        self._route.close()
        if self._sets is not None:
            self._sets.close()

    def default_device(self) -> str | None:
        """The device of the first IPv4 default route of the main table; None if there is no such route."""
        with self._refused("routes"):
            for route in self._route.get_default_routes(family=socket.AF_INET):
                index = route.get_attr("RTA_OIF") or _first_hop(route)
                for link in self._route.get_links(index) if index else ():
                    return cast("str", link.get_attr("IFLA_IFNAME"))
        return None

    def shaping(self, device: str) -> Shaping | None:
        """None if there is no such device."""
        with self._refused(f"qdiscs of {device}"):
            index = self._index(device)
            if index is None:
                return None
            at_root = [each for each in self._route.get_qdiscs(index) if each["parent"] == _TC_ROOT]
            if not at_root:
                return Shaping(device)
            root = _qdisc(at_root[0])
            if (root.kind, root.major) != ("htb", MAJOR):
                return Shaping(device, root)
            classes = tuple(_class(each) for each in self._route.get_classes(index) if each["handle"] >> 16 == MAJOR)
            filters = tuple(_filters(self._route.get_filters(index, 0, _QDISC)))
        return Shaping(device, root, classes, filters)

    def marking(self, sets: frozenset[str]) -> Marking | Unavailable:
        """Those of ``sets`` that there are, and all rules that are like ours."""
        if self._iptables is None:
            return Unavailable("iptables is not installed", "the program iptables, with the matches of ipset")
        rules = frozenset(_rules(self._ran("-S", _CHAIN)))
        with self._refused("ipsets"):
            found = {
                name: each for each in self._open_sets().list() if (name := each.get_attr("IPSET_ATTR_SETNAME")) in sets
            }
            return Marking({name: frozenset(_members(each)) for name, each in found.items()}, rules)

    def do(self, device: str, step: Step) -> None:
        """One step."""
        with self._refused(str(step)):
            match step.thing:
                case AddressSet() | Member():
                    self._do_set(step.verb, step.thing)
                case Rule(name, minor):
                    verb = "-A" if step.verb == "add" else "-D"
                    self._ran(verb, _CHAIN, *_rule(name, minor))
                case _:
                    index = self._index(device)
                    if index is None:
                        raise TrafficControlError(f"{step}: there is no device {device}")
                    self._do_device(index, step)

    def _do_device(self, index: int, step: Step) -> None:
        match step.thing:
            case Qdisc(kind, major, default) if step.verb == "add":
                self._route.tc("add", kind, index, major << 16, default=default)
            case Qdisc():
                self._route.tc("del", index=index, handle=_QDISC, parent=_TC_ROOT)
            case TrafficClass() as class_ if step.verb == "delete":
                self._route.tc("del-class", index=index, handle=_QDISC | class_.minor, parent=_parent(class_))
            case TrafficClass() as class_:
                handle, parent = _QDISC | class_.minor, _parent(class_)
                self._route.tc(f"{step.verb}-class", "htb", index, handle, parent=parent, **_parameters(class_))
            case SourceFilter(address, minor):
                keys = [f"0x{socket.inet_aton(address).hex()}/0xffffffff+{_SOURCE_OFFSET}"]
                given = {"prio": _SOURCE_PRIORITY, "protocol": _IPV4, "target": _QDISC | minor, "keys": keys}
                self._route.tc("add-filter", "u32", index, parent=_QDISC, **given)
            case CgroupFilter():
                info = _CGROUP_PRIORITY << 16 | socket.htons(_IPV4)
                self._route.tc("add-filter", "cgroup", index, _CGROUP_HANDLE, parent=_QDISC, info=info)
            case KernelFilter() as filter_:
                # Without its kind, since the library would make up parameters for the kinds that it knows.
                info = filter_.priority << 16 | socket.htons(filter_.protocol)
                self._route.tc("del-filter", index=index, handle=filter_.handle, parent=_QDISC, info=info)

    def _do_set(self, verb: str, thing: AddressSet | Member) -> None:
        sets = self._open_sets()
        match thing, verb:
            case AddressSet(name), "add":
                sets.create(name, _SET_KIND)
            case AddressSet(name), _:
                sets.destroy(name)
            case Member(name, address), "add":
                sets.add(name, address)
            case Member(name, address), _:
                sets.delete(name, address)

    def _open_sets(self) -> Any:
        if self._sets is None:
            self._sets = self._library.sets()
        return self._sets

    def _index(self, device: str) -> int | None:
        found = self._route.link_lookup(ifname=device)
        return found[0] if found else None

    def _ran(self, *arguments: str) -> str:
        assert self._iptables is not None
        try:
            status, output, errors = self._iptables((*_TABLE, *arguments))
        except (OSError, subprocess.SubprocessError) as error:
            raise TrafficControlError(f"iptables: {error}") from error
        if status != 0:
            raise TrafficControlError(f"iptables {' '.join(arguments)}: {errors.strip() or f'exit status {status}'}")
        return output

    @contextmanager
    def _refused(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._library.error as error:
            raise TrafficControlError(f"{what}: {error.args[-1] if error.args else error}") from error
        except OSError as error:
            raise TrafficControlError(f"{what}: {error.strerror or error}") from error


def open_traffic_control(
    load: Callable[[str], Any] = importlib.import_module, which: Callable[[str], str | None] = shutil.which
) -> NetlinkTrafficControl | Unavailable:
    """A connection, or why there is none. TrafficControlError if the kernel refuses it. Importing takes a second."""
    try:
        pyroute2, netlink = load(PACKAGE), load(f"{PACKAGE}.netlink")
        kinds = load(f"{PACKAGE}.netlink.rtnl.tcmsg").plugins
        error = load(f"{PACKAGE}.netlink.exceptions").NetlinkError
    except ImportError:
        return Unavailable("pyroute2 is not installed", NEEDS)
    kinds.setdefault("cgroup", _cgroup_filters(netlink.nla))
    library = _Library(pyroute2.IPRoute, pyroute2.IPSet, error)
    program = which("iptables")
    return NetlinkTrafficControl(library, None if program is None else _runner(program))


def has_htb_tree() -> bool:
    """Whether any device has an HTB qdisc ``1:`` at its root; True where that cannot be said.

    For those who would import a library only to find that there is nothing to be done: one request, read by hand.
    """
    question = request(_RTM_GETQDISC, NLM_F_DUMP, bytes(_QDISC_HEADER.size))
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as connection:
            connection.settimeout(_SECONDS)
            connection.send(question)
            while True:
                for kind, message in messages(connection.recv(_LONGEST)):
                    if kind in (NLMSG_ERROR, NLMSG_DONE):
                        return kind == NLMSG_ERROR
                    if _is_tree(message):
                        return True
    except OSError:
        return True


KERNEL: Final = TrafficControlAccess(open_traffic_control, has_htb_tree)
"""Of the network namespace in which this program runs."""


def _is_tree(message: bytes) -> bool:
    """The kind is the first attribute of a qdisc."""
    if len(message) < _QDISC_HEADER.size:
        return False
    _, _, handle, parent, _ = _QDISC_HEADER.unpack_from(message)
    return (handle, parent) == (_QDISC, _TC_ROOT) and message[_QDISC_HEADER.size + 4 :].startswith(b"htb\0")


def _cgroup_filters(attribute: Any) -> Any:
    """As pyroute2 has it of other kinds of filters; the kernel insists on options, if only on empty ones."""
    names = ("UNSPEC", "ACT", "POLICE", "EMATCHES")
    formats = tuple((f"TCA_CGROUP_{name}", "hex" if name != "UNSPEC" else "none") for name in names)
    options = type("options", (attribute,), {"nla_map": formats})
    return SimpleNamespace(options=options, get_parameters=lambda _: {"attrs": []})


def _runner(program: str) -> Run:
    def run(arguments: tuple[str, ...]) -> tuple[int, str, str]:
        done = subprocess.run((program, *arguments), capture_output=True, text=True, timeout=_SECONDS, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


def _first_hop(route: Any) -> int | None:
    """Of a default route over several devices."""
    hops = route.get_attr("RTA_MULTIPATH") or ()
    return next((hop["oif"] for hop in hops), None)


def _qdisc(message: Any) -> Qdisc:
    kind, default = message.get_attr("TCA_KIND"), 0
    if kind == "htb":
        default = message.get_attr("TCA_OPTIONS").get_attr("TCA_HTB_INIT")["defcls"]
    return Qdisc(kind, message["handle"] >> 16, default)


def _class(message: Any) -> TrafficClass:
    options = message.get_attr("TCA_OPTIONS")
    given = options.get_attr("TCA_HTB_PARMS")
    return TrafficClass(
        minor=message["handle"] & 0xFFFF,
        parent=ROOT if message["parent"] == _TC_ROOT else message["parent"] & 0xFFFF,
        # What does not fit into 32 bits is distinguished from them.
        rate=options.get_attr("TCA_HTB_RATE64") or given["rate"],
        ceil=options.get_attr("TCA_HTB_CEIL64") or given["ceil"],
        priority=given["prio"],
    )


def _parent(class_: TrafficClass) -> int:
    return _QDISC | class_.parent


def _parameters(class_: TrafficClass) -> Mapping[str, int]:
    """With a quantum, since the kernel logs a warning for each class of which it has to bound it."""
    quantum = min(max(class_.rate // _QUANTA_PER_SECOND, _LOWEST_QUANTUM), _HIGHEST_QUANTUM)
    return {
        "rate": class_.rate,
        "ceil": class_.ceil,
        "burst": max(class_.rate // _BURSTS_PER_SECOND, _LOWEST_BURST),
        "cburst": max(class_.ceil // _BURSTS_PER_SECOND, _LOWEST_BURST),
        "prio": class_.priority,
        "quantum": quantum,
    }


def _filters(listed: Any) -> Iterator[KernelFilter]:
    for message in listed:
        kind, handle, info = message.get_attr("TCA_KIND"), message["handle"], message["info"]
        means: SourceFilter | CgroupFilter | None = None
        if kind == "u32":
            if handle & _U32_TABLE_MASK == 0:
                continue
            means = _source(message.get_attr("TCA_OPTIONS"))
        elif kind == "cgroup":
            if handle == 0:
                continue
            means = CgroupFilter()
        yield KernelFilter(means, kind, info >> 16, socket.ntohs(info & 0xFFFF), handle)


def _source(options: Any) -> SourceFilter | None:
    selector, target = options.get_attr("TCA_U32_SEL"), options.get_attr("TCA_U32_CLASSID")
    if selector is None or selector["nkeys"] != 1 or target is None or target >> 16 != MAJOR:
        return None
    # pyroute2 0.9.7 decodes the key from four bytes before it, the header of the attribute not counted.
    mask, value, offset, _ = _U32_KEY.unpack_from(selector.data, selector.offset + _U32_SELECTOR_BYTES)
    if offset != _SOURCE_OFFSET or mask != b"\xff\xff\xff\xff":
        return None
    return SourceFilter(socket.inet_ntoa(value), target & 0xFFFF)


def _members(message: Any) -> Iterator[str]:
    entries = message.get_attr("IPSET_ATTR_ADT")
    for entry in entries.get_attrs("IPSET_ATTR_DATA") if entries is not None else ():
        address = entry.get_attr("IPSET_ATTR_IP_FROM")
        if address is not None:
            yield address.get_attr("IPSET_ATTR_IPADDR_IPV4")


def _rule(name: str, minor: int) -> tuple[str, ...]:
    return ("-m", "set", "--match-set", name, "src", "-j", "CLASSIFY", "--set-class", f"{MAJOR}:{minor:x}")


def _rules(listing: str) -> Iterator[Rule]:
    """Of ``iptables -S``, which writes class 1:3 as 0001:0003."""
    for line in listing.splitlines():
        words = line.split()
        if words[:2] != ["-A", _CHAIN] or len(words) != len(_rule("", 0)) + 2:
            continue
        name, (major, _, minor) = words[5], words[-1].partition(":")
        if words[2:5] + words[6:-1] == ["-m", "set", "--match-set", "src", "-j", "CLASSIFY", "--set-class"]:
            try:
                if int(major, 16) == MAJOR:
                    yield Rule(name, int(minor, 16))
            except ValueError:
                continue
