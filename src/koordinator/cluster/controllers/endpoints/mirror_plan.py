"""The EndpointSlices that mirror an Endpoints object which no controller keeps; pure.

Addresses of one family that offer the same ports are one slice, of which a reader of slices alone would know nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from koordinator.cluster.controllers.endpoints.slice_plan import SliceContent, SlicePlan, replace_unused
from koordinator.cluster.controllers.endpoints.types import (
    Endpoint,
    EndpointAddress,
    EndpointConditions,
    EndpointPort,
    Endpoints,
    EndpointSlice,
    EndpointSubset,
)

MAX_ADDRESSES: Final = 1000
"""Of one subset."""
_Offer = dict[tuple[str, str], bool]
"""Address and UID of what is behind it -> whether it is ready."""


class Mirror(NamedTuple):
    contents: list[SliceContent]
    """What the slices are to have."""
    skipped: int
    """Addresses that are too many for them."""


def mirrored(endpoints: Endpoints) -> Mirror:
    """Of the subsets, whatever way they are written."""
    contents: dict[tuple[str, tuple[EndpointPort, ...]], SliceContent] = {}
    skipped = 0
    for ports, addresses in _repacked(endpoints.subsets or ()):
        skipped += max(0, len(addresses) - MAX_ADDRESSES)
        for address, ready in addresses[:MAX_ADDRESSES]:
            family = f"IPv{ipaddress.ip_address(address.ip).version}"
            content = contents.setdefault((family, ports), SliceContent(family, list(ports), []))
            content.endpoints.append(_endpoint(address, ready=ready))
    return Mirror(list(contents.values()), skipped)


def plan_mirror(wanted: Iterable[SliceContent], existing: Sequence[EndpointSlice]) -> SlicePlan:
    """One slice for each content. A slice that nothing is left of becomes one that is missing."""
    plan = SlicePlan()
    placed: dict[tuple[str, tuple[EndpointPort, ...]], list[EndpointSlice]] = {}
    for each in existing:
        placed.setdefault((each.address_type, tuple(each.ports or ())), []).append(each)
    missing: list[SliceContent] = []
    for content in wanted:
        found = placed.get((content.address_type, tuple(content.ports or ())))
        if not found:
            missing.append(content)
            continue
        first = found.pop(0)
        if (first.endpoints or []) != content.endpoints:
            plan.update.append((first, content))
    for family in ("IPv4", "IPv6"):
        unused = [each for slices in placed.values() for each in slices if each.address_type == family]
        replace_unused([each for each in missing if each.address_type == family], unused, plan)
    return plan


def _repacked(
    subsets: Iterable[EndpointSubset],
) -> list[tuple[tuple[EndpointPort, ...], list[tuple[EndpointAddress, bool]]]]:
    """Addresses that offer the same ports, in their order; where an address is both, it is not ready."""
    known: dict[tuple[str, str], EndpointAddress] = {}
    offers: dict[EndpointPort | None, _Offer] = {}
    for subset in subsets:
        for port in subset.ports or (None,):
            offer = offers.setdefault(port, {})
            for addresses, ready in ((subset.addresses, True), (subset.not_ready_addresses, False)):
                for address in addresses:
                    key = (address.ip, address.target_ref.uid if address.target_ref is not None else "")
                    known.setdefault(key, address)
                    offer[key] = offer.get(key, True) and ready
    by_offer: dict[tuple[tuple[tuple[str, str], bool], ...], list[EndpointPort]] = {}
    for port, offer in offers.items():
        by_offer.setdefault(tuple(sorted(offer.items())), []).extend([] if port is None else [port])
    return [
        (tuple(ports), [(known[key], ready) for key, ready in sorted(offer, key=lambda item: not item[1])])
        for offer, ports in by_offer.items()
    ]


def _endpoint(address: EndpointAddress, *, ready: bool) -> Endpoint:
    return Endpoint(
        addresses=[str(ipaddress.ip_address(address.ip))],
        conditions=EndpointConditions(ready=ready),
        hostname=address.hostname or None,
        target_ref=address.target_ref,
        node_name=address.node_name,
    )
