"""Cluster IPs and node ports of Services: chosen at random from their ranges, or as requested if they are free.

What is taken is what the stored Services have, so that nothing is left behind by one that is gone, together with what
those have that are on their way into the store.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError, invalid
from koordinator.cluster.resource import Cause
from koordinator.cluster.storage.interface import Storage, Stored
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
_decode = msgspec.json.Decoder(dict[str, Any]).decode

Claim = str | int
"""A cluster IP or a node port."""


@dataclass(frozen=True, slots=True)
class _Known:
    revision: int
    claims: frozenset[Claim]


class ServiceAddresses:
    """Of one server."""

    def __init__(self, storage: Storage, random: Random) -> None:
        self._storage = storage
        self._random = random
        self._known: dict[str, _Known] = {}
        """What the stored Services had when they were last looked at, by their keys."""
        self._held: list[set[Claim]] = []

    def holding(self, target: Target) -> AbstractContextManager[Allocate]:
        """What is allocated in the block is kept from others until its end, when the Service is stored or is not."""
        resource = target.resource
        is_service = (resource.group, resource.plural, target.subresource) == ("", "services", "")
        return self._holding(target) if is_service else nullcontext(allocate_nothing)

    @contextmanager
    def _holding(self, target: Target) -> Iterator[Allocate]:
        held: set[Claim] = set()
        self._held.append(held)
        try:
            yield lambda service: self._allocate(target, service, held)
        finally:
            self._held.remove(held)

    def _allocate(self, target: Target, service: Document, held: set[Claim]) -> None:
        spec, own = service["spec"], self._own(target)
        if not _lacks(spec) and _claims(spec) <= own:
            return
        errors = allocate(spec, self._taken(target), own, self._random)
        held |= _claims(spec)
        if errors:
            raise invalid(target.resource, service["metadata"]["name"], errors)

    def _own(self, target: Target) -> frozenset[Claim]:
        stored = self._storage.get(target.key) if target.name else None
        return frozenset() if stored is None else _stored_claims(stored)

    def _taken(self, target: Target) -> set[Claim]:
        """By all other Services."""
        known: dict[str, _Known] = {}
        for stored in self._storage.list(target.resource.storage_prefix()).items:
            before = self._known.get(stored.key)
            is_same = before is not None and before.revision == stored.revision
            known[stored.key] = before if before is not None and is_same else _known(stored)
        self._known = known
        of_others = [each.claims for key, each in known.items() if not target.name or key != target.key]
        return set().union(*of_others, *self._held)


def _known(stored: Stored) -> _Known:
    return _Known(stored.revision, _stored_claims(stored))


def _stored_claims(stored: Stored) -> frozenset[Claim]:
    return _claims(_decode(stored.value).get("spec") or {})


def _claims(spec: Document) -> frozenset[Claim]:
    """All that a Service has."""
    addresses = [each for each in (spec.get("clusterIP"), *(spec.get("clusterIPs") or ())) if each and each != HEADLESS]
    ports = [spec.get("healthCheckNodePort"), *(port.get("nodePort") for port in spec.get("ports") or ())]
    return frozenset([*addresses, *(port for port in ports if port)])


def _lacks(spec: Document) -> bool:
    """Whether a Service does not have all that one of its type has."""
    if has_cluster_ip(spec) and not spec.get("clusterIP"):
        return True
    if has_health_port(spec) and not spec.get("healthCheckNodePort"):
        return True
    return has_node_ports(spec) and not all(port.get("nodePort") for port in spec.get("ports") or ())


# The choice; pure but for the random numbers.


def allocate(spec: Document, taken: Set[Claim], own: Set[Claim], random: Random) -> list[Cause]:
    """Give the Service what it lacks, and check what it asks for; returns what it cannot have. ``taken``: what others
    have; ``own``: what it has already, which stays wherever it is. Raises ApiError 500 when a range is exhausted."""
    errors: list[Cause] = []
    addresses = [each for each in spec.get("clusterIPs") or () if each != HEADLESS and each not in own]
    for address in addresses:
        if why := _refusal_of_address(address, taken):
            why = f"failed to allocate IP {address}: {why}"
            errors.append(causes.invalid("spec.clusterIPs", spec["clusterIPs"], why))
    if has_cluster_ip(spec) and not spec.get("clusterIP"):
        spec["clusterIP"] = _free_address(taken, random)
        spec["clusterIPs"] = [spec["clusterIP"]]
    ports = spec.get("ports") or []
    errors += _requested_ports(ports, taken, own)
    health = spec.get("healthCheckNodePort")
    if health and health not in own and (why := _refusal_of_port(health, taken)):
        errors.append(causes.invalid("spec.healthCheckNodePort", health, why))
    if not errors:
        _choose_ports(spec, set(taken), random)
    return errors


def _requested_ports(ports: Sequence[Document], taken: Set[Claim], own: Set[Claim]) -> list[Cause]:
    errors: list[Cause] = []
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        number = port.get("nodePort")
        if not number:
            continue
        # A port of two protocols has one number for both.
        is_double = (port["protocol"], number) in seen
        seen.add((port["protocol"], number))
        why = _TAKEN_PORT if is_double else "" if number in own else _refusal_of_port(number, taken)
        if why:
            errors.append(causes.invalid(f"spec.ports[{index}].nodePort", number, why))
    return errors


def _choose_ports(spec: Document, taken: set[Claim], random: Random) -> None:
    ports = spec.get("ports") or []
    taken |= _claims(spec)
    for port in ports if has_node_ports(spec) else ():
        if not port.get("nodePort"):
            same = (each["nodePort"] for each in ports if each["port"] == port["port"] and each.get("nodePort"))
            port["nodePort"] = next(same, None) or _free(NODE_PORTS, _KEPT_PORTS, taken, random, _NO_PORT)
            taken.add(port["nodePort"])
    if has_health_port(spec) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = _free(NODE_PORTS, _KEPT_PORTS, taken, random, _NO_PORT)


def _refusal_of_address(text: str, taken: Set[Claim]) -> str:
    if int(ipaddress.ip_address(text)) not in _ADDRESSES:
        return "the provided network does not match the current range"
    return "provided IP is already allocated" if text in taken else ""


def _refusal_of_port(number: int, taken: Set[Claim]) -> str:
    if number not in NODE_PORTS:
        shown = f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}"
        return f"provided port is not in the valid range. The range of valid ports is {shown}"
    return _TAKEN_PORT if number in taken else ""


def _free_address(taken: Set[Claim], random: Random) -> str:
    numbers = {int(ipaddress.ip_address(each)) for each in taken if isinstance(each, str)}
    return str(ipaddress.ip_address(_free(_ADDRESSES, _KEPT_ADDRESSES, numbers, random, _NO_ADDRESS)))


def _free(numbers: range, kept: int, taken: Set[Any], random: Random, refusal: str) -> int:
    """One at random, of the kept ones only if there is no other."""
    for part in (numbers[kept:], numbers[:kept]):
        start = random.randrange(len(part))
        for offset in range(len(part)):
            number = part[(start + offset) % len(part)]
            if number not in taken:
                return number
    raise ApiError(500, "InternalError", f"Internal error occurred: {refusal}: range is full")
