"""What kubelet's own CPU manager and topology manager do on the node: its configuration, its checkpoint, and which CPUs
it takes for a number of CPUs, by the same rule; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from operator import attrgetter
from typing import Any, Final

from koordinator.api.codec import DecodeError, convert, decode
from koordinator.api.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.api.meta import WireStruct
from koordinator.api.quantity import QuantityError, parse_quantity
from koordinator.base.errors import KoordinatorError
from koordinator.koordlet.enforce.strategies.snapshot import STATIC, cpu_list_or_none
from koordinator.node.cpu_topology import CPUTopology, LogicalCPU

NO_TOPOLOGY_POLICY: Final = "None"
_TOPOLOGY_POLICIES: Final = {
    "single-numa-node": "SingleNUMANode",
    "restricted": "Restricted",
    "best-effort": "BestEffort",
}
_TOPOLOGY_SCOPES: Final = {"container": "ContainerLevel", "pod": "PodLevel"}
_STRICT: Final = "strict-cpu-reservation"
_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
_RESERVABLE: Final = ("cpu", "memory", "ephemeral-storage", "pid")
_NANO: Final = 10**9
_PartOf = Callable[[LogicalCPU], int]
_CORE: Final[_PartOf] = attrgetter("core")
_LEVELS: Final[Sequence[_PartOf]] = (attrgetter("socket"), attrgetter("numa_node"), _CORE)


class CPUManagerStateError(KoordinatorError):
    """Kubelet's checkpoint of its CPU manager cannot be read."""


@dataclass(frozen=True, slots=True)
class KubeletCPUs:
    """``policy`` is empty, and nothing is known, where the kubelet is not queried. ``problem`` says why no CPUs are
    reserved although the static policy reserves some."""

    policy: str = ""
    options: Mapping[str, str] | None = None
    reserved: frozenset[int] = frozenset()
    topology_policy: str = NO_TOPOLOGY_POLICY
    problem: str = ""

    @property
    def kept(self) -> frozenset[int]:
        """CPUs that no pod may use. Unless its policy is strict, kubelet lets all pods that have no CPUs of their own
        on the reserved ones, too."""
        return self.reserved if self.options and self.options.get(_STRICT) in _TRUE else frozenset()

    def document(self) -> dict[str, Any]:
        """As the annotation kubelet.koordinator.sh/cpu-manager-policy has it."""
        members = {
            "policy": self.policy,
            "options": dict(sorted(self.options.items())) if self.options else None,
            "reservedCPUs": format_cpu_list(self.reserved),
        }
        return {name: value for name, value in members.items() if value}


def kubelet_cpus(configuration: Mapping[str, Any], topology: CPUTopology) -> KubeletCPUs:
    """What a configuration as ``/configz`` shows it means for the CPUs of the machine."""
    policy = str(configuration.get("cpuManagerPolicy") or "")
    options = configuration.get("cpuManagerPolicyOptions")
    reserved: frozenset[int] = frozenset()
    problem = ""
    if policy == STATIC:
        try:
            reserved = _reserved(configuration, topology)
        except ValueError as error:
            problem = f"kubelet's static CPU manager reserves CPUs that are not known: {error}"
    return KubeletCPUs(
        policy,
        {str(name): str(value) for name, value in options.items()} if isinstance(options, dict) else None,
        reserved,
        _topology_policy(configuration),
        problem,
    )


def _topology_policy(configuration: Mapping[str, Any]) -> str:
    policy = _TOPOLOGY_POLICIES.get(str(configuration.get("topologyManagerPolicy")))
    scope = _TOPOLOGY_SCOPES.get(str(configuration.get("topologyManagerScope")))
    return f"{policy}{scope}" if policy and scope else NO_TOPOLOGY_POLICY


def _reserved(configuration: Mapping[str, Any], topology: CPUTopology) -> frozenset[int]:
    """ValueError with the reason if the configuration does not lead to a set of CPUs."""
    named = parse_cpu_list(str(configuration.get("reservedSystemCPUs") or ""))
    online = frozenset(cpu.cpu for cpu in topology.cpus)
    if not named <= online:
        raise ValueError(f"reservedSystemCPUs {format_cpu_list(named)} is no part of {format_cpu_list(online)}")
    amounts = [_reserved_cpu(configuration, name) for name in ("systemReserved", "kubeReserved")]
    if named:
        return named
    count = ceil(sum(amounts, Fraction(0)))
    if not count:
        raise ValueError("systemReserved.cpu and kubeReserved.cpu are 0")
    return take_packed(topology, count)


def _reserved_cpu(configuration: Mapping[str, Any], name: str) -> Fraction:
    cpu = Fraction(0)
    for resource, text in convert(configuration.get(name) or {}, dict[str, str]).items():
        if resource not in _RESERVABLE:
            raise ValueError(f"{name} reserves {resource}: allowed are {', '.join(_RESERVABLE)}")
        try:
            amount = parse_quantity(text)
        except QuantityError as error:
            raise ValueError(f"{name}.{resource}: {error}") from error
        if amount.nanos < 0:
            raise ValueError(f"{name}.{resource} is {text}: it cannot be negative")
        if resource == "cpu":
            cpu = Fraction(amount.nanos, _NANO)
    return cpu


class _CPUManagerState(WireStruct):
    entries: dict[str, dict[str, str]] = {}


def parse_cpu_manager_state(content: bytes) -> dict[str, frozenset[int]]:
    """The CPUs that kubelet has given to pods, by UID; pods without any are left out.

    CPUManagerStateError if it is no such checkpoint. A list of CPUs that makes no sense counts for nothing.
    """
    if not content.strip():
        return {}
    try:
        state = decode(content, _CPUManagerState)
    except DecodeError as error:
        raise CPUManagerStateError(f"cpu_manager_state: {error}") from error
    by_pod = {
        uid: frozenset().union(*(cpu_list_or_none(text) for text in containers.values()))
        for uid, containers in state.entries.items()
    }
    return {uid: cpus for uid, cpus in by_pod.items() if cpus}


def take_packed(topology: CPUTopology, count: int) -> frozenset[int]:
    """So many of all CPUs: whole sockets, then whole NUMA nodes, then whole cores, then single CPUs.

    At each level those come first that have the fewest free CPUs, then those of the lowest number. With 8 CPUs, of
    which each two share a core (0 and 4, 1 and 5 …), 2 are 0 and 4. ValueError if there are not so many.
    """
    if count > len(topology.cpus):
        raise ValueError(f"{count} CPUs are wanted, and there are {len(topology.cpus)}")
    free = set(topology.cpus)
    needed = max(count, 0)
    for part_of in _LEVELS:
        whole = Counter(map(part_of, topology.cpus))
        for part in _in_order(free, part_of):
            cpus = [cpu for cpu in free if part_of(cpu) == part]
            if len(cpus) == whole[part] <= needed:
                free.difference_update(cpus)
                needed -= len(cpus)
    free.difference_update(_single(free)[:needed])
    return frozenset(cpu.cpu for cpu in topology.cpus if cpu not in free)


def _in_order(free: Collection[LogicalCPU], part_of: _PartOf) -> list[int]:
    """Parts that have free CPUs; NUMA nodes in the order of their sockets, cores in that of their NUMA nodes."""
    sizes = [Counter(map(level, free)) for level in _LEVELS]

    def place(cpu: LogicalCPU) -> tuple[int, ...]:
        key: tuple[int, ...] = ()
        for level, size in zip(_LEVELS, sizes, strict=True):
            key += (size[level(cpu)], level(cpu))
            if level is part_of:
                break
        return key

    return list(dict.fromkeys(part_of(cpu) for cpu in sorted(free, key=place)))


def _single(free: Collection[LogicalCPU]) -> list[LogicalCPU]:
    places = {core: place for place, core in enumerate(_in_order(free, _CORE))}
    return sorted(free, key=lambda cpu: (places[cpu.core], cpu.cpu))
