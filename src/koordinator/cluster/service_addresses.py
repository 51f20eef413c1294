"""Cluster IPs and node ports of Services: chosen at random from their ranges, or as requested if they are free.

What is taken is what the stored Services have, so that nothing is left behind by one that is gone, together with what
those have that are on their way into the store.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from random import Random
from typing import Final, NamedTuple

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError, invalid
from koordinator.cluster.resource import Cause, Resource
from koordinator.cluster.storage.interface import Change, Storage, Stored
from koordinator.cluster.strategy import causes
from koordinator.cluster.strategy.service import HEADLESS, has_cluster_ip, has_health_port, has_node_ports
from koordinator.cluster.verbs.environment import Allocate, allocate_nothing
from koordinator.cluster.verbs.target import Target

CLUSTER_IPS: Final = ipaddress.ip_network("10.96.0.0/12")
NODE_PORTS: Final = range(30000, 32768)
_FIRST: Final = int(CLUSTER_IPS.network_address) + 1
_ADDRESSES: Final = range(_FIRST, int(CLUSTER_IPS.broadcast_address))
_KEPT_ADDRESSES: Final = 256
_KEPT_PORTS: Final = 86
"""So many of the lowest are chosen only when no others are free: they are left to those who ask for them, as in
Kubernetes."""
_TAKEN_PORT: Final = "provided port is already allocated"
_NO_PORT: Final = "failed to allocate a nodePort"
_NO_ADDRESS: Final = "failed to allocate a serviceIP"

Claim = str | int
"""A cluster IP or a node port."""
IsTaken = Callable[[Claim], bool]


class ServiceAddresses:
    """Of one server; ``services`` is the kind."""

    def __init__(self, storage: Storage, services: Resource, random: Random) -> None:
        self._random = random
        self.prefix = services.prefix
        self._stored: dict[str, _Holding] = {}
        """By the keys of the Services."""
        self._holders: Counter[Claim] = Counter()
        self._held: list[set[Claim]] = []
        for stored in storage.list(self.prefix).items:
            self._set(stored.key, _holding_of(stored))
        storage.observe(self._follow)

    def holding(self, target: Target) -> AbstractContextManager[Allocate]:
        """What is allocated in the block is kept from others until its end, when the Service is stored or is not."""
        return nullcontext(allocate_nothing) if target.subresource else self._holding(target)

    @contextmanager
    def _holding(self, target: Target) -> Iterator[Allocate]:
        held: set[Claim] = set()
        self._held.append(held)
        try:
            yield lambda service: self._allocate(target, service, held)
        finally:
            self._held.remove(held)

    def _allocate(self, target: Target, service: Document, held: set[Claim]) -> None:
        spec = service["spec"]
        before = self._stored.get(target.key, _NOTHING) if target.name else _NOTHING
        # A port for health checks may not change, which is for the rules of the kind to say.
        health = spec.get("healthCheckNodePort") if before.has_health_port else None
        own = before.claims | _all_claims((), (health,))
        if not _lacks(spec) and _claims(spec) <= own:
            return

        def is_taken(claim: Claim) -> bool:
            return self._holders[claim] > (claim in own) or any(claim in each for each in self._held)

        errors = allocate(spec, is_taken, own, self._random)
        held |= _claims(spec)
        if errors:
            raise invalid(target.resource, service["metadata"]["name"], errors)

    def _follow(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.key.startswith(self.prefix):
                is_gone = change.type == "deleted"
                self._set(change.key, _NOTHING if is_gone else _holding_of(change.current))

    def _set(self, key: str, holding: _Holding) -> None:
        for claim in self._stored.pop(key, _NOTHING).claims:
            self._holders[claim] -= 1
            if not self._holders[claim]:
                del self._holders[claim]
        self._holders.update(holding.claims)
        if holding.claims:
            self._stored[key] = holding


class _Holding(NamedTuple):
    """What a stored Service has."""

    claims: frozenset[Claim] = frozenset()
    has_health_port: bool = False


_NOTHING: Final = _Holding()


class _Port(msgspec.Struct, rename="camel"):
    node_port: int | None = None


class _Spec(msgspec.Struct, rename="camel"):
    cluster_ip: str | None = msgspec.field(default=None, name="clusterIP")
    cluster_ips: list[str] | None = msgspec.field(default=None, name="clusterIPs")
    health_check_node_port: int | None = None
    ports: list[_Port] | None = None


class _Service(msgspec.Struct):
    spec: _Spec


_decode: Final = msgspec.json.Decoder(_Service).decode


def _holding_of(stored: Stored) -> _Holding:
    """Nothing where it cannot be read, which only a damaged store has."""
    try:
        spec = _decode(stored.value).spec
    except msgspec.DecodeError:
        return _NOTHING
    addresses = [spec.cluster_ip, *(spec.cluster_ips or ())]
    ports = [spec.health_check_node_port, *(port.node_port for port in spec.ports or ())]
    return _Holding(_all_claims(addresses, ports), bool(spec.health_check_node_port))


def _all_claims(addresses: Iterable[str | None], ports: Iterable[int | None]) -> frozenset[Claim]:
    return frozenset([*(each for each in addresses if each and each != HEADLESS), *(port for port in ports if port)])


def _claims(spec: Document) -> frozenset[Claim]:
    """All that a Service has or asks for."""
    return _all_claims(
        [spec.get("clusterIP"), *(spec.get("clusterIPs") or ())],
        [spec.get("healthCheckNodePort"), *(port.get("nodePort") for port in spec.get("ports") or ())],
    )


def _lacks(spec: Document) -> bool:
    """Whether a Service does not have all that one of its type has."""
    if has_cluster_ip(spec) and not spec.get("clusterIP"):
        return True
    if has_health_port(spec) and not spec.get("healthCheckNodePort"):
        return True
    return has_node_ports(spec) and not all(port.get("nodePort") for port in spec.get("ports") or ())


# The choice; pure but for the random numbers.


def allocate(spec: Document, is_taken: IsTaken, own: Set[Claim], random: Random) -> list[Cause]:
    """Give the Service what it lacks, and check what it asks for; returns the first thing that it cannot have.
    ``is_taken``: by another one; ``own``: what it has already, which stays wherever it is. Raises ApiError 500 when a
    range is exhausted, and as the real server does for the port of a health check."""
    for address in spec.get("clusterIPs") or ():
        if address != HEADLESS and address not in own and (why := _refusal_of_address(address, is_taken)):
            why = f"failed to allocate IP {address}: {why}"
            return [causes.invalid("spec.clusterIPs", spec["clusterIPs"], why)]
    if errors := _requested_ports(spec.get("ports") or [], is_taken, own):
        return errors[:1]
    health = spec.get("healthCheckNodePort")
    if health and health not in own and (why := _refusal_of_port(health, is_taken)):
        raise _internal_error(f"failed to allocate requested HealthCheck NodePort {health}: {why}")
    if has_cluster_ip(spec) and not spec.get("clusterIP"):
        spec["clusterIP"] = _free_address(is_taken, random)
        spec["clusterIPs"] = [spec["clusterIP"]]
    _choose_ports(spec, is_taken, random)
    return []


def _internal_error(text: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {text}")


def _requested_ports(ports: Sequence[Document], is_taken: IsTaken, own: Set[Claim]) -> list[Cause]:
    errors: list[Cause] = []
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        number = port.get("nodePort")
        if not number:
            continue
        # A port of two protocols has one number for both.
        is_double = (port["protocol"], number) in seen
        seen.add((port["protocol"], number))
        why = _TAKEN_PORT if is_double else "" if number in own else _refusal_of_port(number, is_taken)
        if why:
            errors.append(causes.invalid(f"spec.ports[{index}].nodePort", number, why))
    return errors


def _choose_ports(spec: Document, is_taken: IsTaken, random: Random) -> None:
    ports = spec.get("ports") or []
    chosen = set(_claims(spec))

    def choose() -> int:
        number = _free(NODE_PORTS, _KEPT_PORTS, lambda each: each in chosen or is_taken(each), random, _NO_PORT)
        chosen.add(number)
        return number

    for port in ports if has_node_ports(spec) else ():
        if not port.get("nodePort"):
            same = (each["nodePort"] for each in ports if each["port"] == port["port"] and each.get("nodePort"))
            port["nodePort"] = next(same, None) or choose()
    if has_health_port(spec) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = choose()


def _refusal_of_address(text: str, is_taken: IsTaken) -> str:
    if int(ipaddress.ip_address(text)) not in _ADDRESSES:
        return "the provided network does not match the current range"
    return "provided IP is already allocated" if is_taken(text) else ""


def _refusal_of_port(number: int, is_taken: IsTaken) -> str:
    if number not in NODE_PORTS:
        shown = f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}"
        return f"provided port is not in the valid range. The range of valid ports is {shown}"
    return _TAKEN_PORT if is_taken(number) else ""


def _free_address(is_taken: IsTaken, random: Random) -> str:
    def is_used(number: int) -> bool:
        return is_taken(str(ipaddress.ip_address(number)))

    return str(ipaddress.ip_address(_free(_ADDRESSES, _KEPT_ADDRESSES, is_used, random, _NO_ADDRESS)))


def _free(numbers: range, kept: int, is_used: Callable[[int], bool], random: Random, refusal: str) -> int:
    """One at random, of the kept ones only if there is no other."""
    for part in (numbers[kept:], numbers[:kept]):
        start = random.randrange(len(part))
        for offset in range(len(part)):
            number = part[(start + offset) % len(part)]
            if not is_used(number):
                return number
    raise _internal_error(f"{refusal}: range is full")
