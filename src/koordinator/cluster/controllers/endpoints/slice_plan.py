"""How the endpoints of a Service are spread over EndpointSlices, with as few writes as possible; pure.

All endpoints of a slice have the same ports and an address of the same family. An endpoint stays in the slice that it
is in; new ones fill slices that are written anyway, then one that has room for all, then new ones. A slice that nothing
is left of becomes one that is missing, so that a reader never sees a gap between a deletion and a creation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from koordinator.api.meta import ObjectReference
from koordinator.cluster.controllers.endpoints.pod_endpoints import PodEndpoint, Ports
from koordinator.cluster.controllers.endpoints.types import (
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    Service,
)

MAX_ENDPOINTS: Final = 100
"""In one slice."""


@dataclass(slots=True)
class SliceContent:
    """What a slice has or is to have."""

    address_type: str
    ports: list[EndpointPort] | None
    endpoints: list[Endpoint]


@dataclass(frozen=True, slots=True)
class SlicePlan:
    create: list[SliceContent] = field(default_factory=list)
    update: list[tuple[EndpointSlice, SliceContent]] = field(default_factory=list)
    delete: list[EndpointSlice] = field(default_factory=list)


def plan_slices(
    service: Service,
    endpoints: Iterable[PodEndpoint],
    existing: Sequence[EndpointSlice],
    zones: Mapping[str, str],
) -> SlicePlan:
    """``existing``: the slices of this Service; ``zones``: by the names of nodes."""
    plan = SlicePlan()
    for family in service.families:
        wanted = [each for each in endpoints if each.family == family]
        _plan_family(family, _grouped(wanted, zones), [each for each in existing if each.address_type == family], plan)
    plan.delete.extend(each for each in existing if each.address_type not in service.families)
    return plan


def _grouped(endpoints: Iterable[PodEndpoint], zones: Mapping[str, str]) -> dict[Ports, list[Endpoint]]:
    groups: dict[Ports, list[Endpoint]] = {}
    for each in endpoints:
        groups.setdefault(each.ports, []).append(_endpoint(each, zones))
    return groups


def _endpoint(found: PodEndpoint, zones: Mapping[str, str]) -> Endpoint:
    node = found.pod.spec.node_name
    return Endpoint(
        addresses=[found.address],
        conditions=EndpointConditions(ready=found.is_ready, serving=found.serving, terminating=found.terminating),
        hostname=found.hostname or None,
        target_ref=found.reference,
        node_name=node or None,
        zone=zones.get(node),
    )


def _plan_family(
    family: str, groups: Mapping[Ports, list[Endpoint]], existing: Sequence[EndpointSlice], plan: SlicePlan
) -> None:
    placed: dict[Ports, list[EndpointSlice]] = {}
    for each in existing:
        placed.setdefault(tuple(each.ports or ()), []).append(each)
    missing: list[SliceContent] = []
    unused = [each for ports, slices in placed.items() if ports not in groups for each in slices]
    for ports, endpoints in groups.items():
        more, spare = _plan_group(endpoints, placed.get(ports, []), plan)
        missing += [SliceContent(family, list(ports) or None, part) for part in more]
        unused += spare
    if not groups:
        # One without endpoints says that there are none, which no slice does not.
        missing = [SliceContent(family, None, [])]
    replace_unused(missing, unused, plan)


def _plan_group(
    endpoints: Iterable[Endpoint], slices: Sequence[EndpointSlice], plan: SlicePlan
) -> tuple[list[list[Endpoint]], list[EndpointSlice]]:
    """Of endpoints with the same ports. Returns the contents of slices that are missing, and slices that are empty."""
    wanted = {_identity(each): each for each in endpoints}
    kept = [
        (each, [wanted.pop(key) for key in map(_identity, each.endpoints or ()) if key in wanted]) for each in slices
    ]
    changed = [(each, there) for each, there in kept if there and there != each.endpoints]
    same = [(each, there) for each, there in kept if there and there == each.endpoints]
    rest = iter(list(wanted.values()))
    left = len(wanted)
    for _, there in sorted(changed, key=lambda pair: -len(pair[1])):
        left -= _fill(there, rest)
    # One more slice is better than two more writes: of those with room, only one that takes all is touched.
    fitting = [pair for pair in same if left and len(pair[1]) + left <= MAX_ENDPOINTS]
    if fitting:
        fullest = max(fitting, key=lambda pair: len(pair[1]))
        left -= _fill(fullest[1], rest)
        changed.append(fullest)
    plan.update.extend((each, SliceContent(each.address_type, each.ports, there)) for each, there in changed)
    others = list(rest)
    more = [others[start : start + MAX_ENDPOINTS] for start in range(0, len(others), MAX_ENDPOINTS)]
    return more, [each for each, there in kept if not there]


def _fill(there: list[Endpoint], more: Iterator[Endpoint]) -> int:
    """Add as many as fit; returns how many."""
    before = len(there)
    for _ in range(MAX_ENDPOINTS - before):
        endpoint = next(more, None)
        if endpoint is None:
            break
        there.append(endpoint)
    return len(there) - before


def replace_unused(missing: list[SliceContent], unused: list[EndpointSlice], plan: SlicePlan) -> None:
    """Turn slices that nothing is left of into missing ones."""
    for content in list(missing):
        same = next((each for each in unused if _content(each) == content), None)
        if same is not None:
            unused.remove(same)
            missing.remove(content)
    pairs = min(len(missing), len(unused))
    plan.update.extend(zip(unused[:pairs], missing[:pairs], strict=True))
    plan.delete.extend(unused[pairs:])
    plan.create.extend(missing[pairs:])


def _content(existing: EndpointSlice) -> SliceContent:
    return SliceContent(existing.address_type, existing.ports or None, existing.endpoints or [])


def _identity(endpoint: Endpoint) -> tuple[str, ...]:
    """The pod and its address."""
    reference = endpoint.target_ref or ObjectReference()
    return (reference.uid, *endpoint.addresses)
