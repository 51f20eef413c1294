"""The subsets of an Endpoints object, the older list of the pods of a Service; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from koordinator.cluster.controllers.endpoints.pod_endpoints import PodEndpoint
from koordinator.cluster.controllers.endpoints.types import EndpointAddress, EndpointPort, EndpointSubset, Service

MAX_ADDRESSES: Final = 1000
"""In one Endpoints object; ready ones go first."""
OVER_CAPACITY: Final = "endpoints.kubernetes.io/over-capacity"


def endpoint_subsets(service: Service, endpoints: Iterable[PodEndpoint]) -> tuple[list[EndpointSubset], bool]:
    """The subsets, and whether addresses are left out because there are too many.

    All addresses are of one family. Pods that are being deleted are listed only where readiness does not matter.
    """
    with_leaving = service.spec.publish_not_ready_addresses
    counted = [
        each for each in endpoints if each.family == service.families[0] and (with_leaving or not each.terminating)
    ]
    listed = sorted(counted, key=lambda each: not each.is_ready)[:MAX_ADDRESSES]
    by_port: dict[EndpointPort | None, list[PodEndpoint]] = {}
    for each in listed:
        for port in each.ports if service.spec.ports else (None,):
            by_port.setdefault(port, []).append(each)
    return _packed(by_port), len(counted) > MAX_ADDRESSES


def _packed(by_port: dict[EndpointPort | None, list[PodEndpoint]]) -> list[EndpointSubset]:
    """Ports that the same addresses offer share a subset."""
    by_addresses: dict[tuple[tuple[str, bool], ...], list[EndpointPort]] = {}
    members: dict[tuple[tuple[str, bool], ...], list[PodEndpoint]] = {}
    for port, endpoints in by_port.items():
        key = tuple(sorted((each.pod.metadata.uid, each.is_ready) for each in endpoints))
        members[key] = endpoints
        by_addresses.setdefault(key, []).extend([] if port is None else [port])
    return [
        EndpointSubset(
            addresses=[_address(each) for each in members[key] if each.is_ready],
            not_ready_addresses=[_address(each) for each in members[key] if not each.is_ready],
            ports=ports,
        )
        for key, ports in by_addresses.items()
    ]


def _address(endpoint: PodEndpoint) -> EndpointAddress:
    return EndpointAddress(
        ip=endpoint.address,
        hostname=endpoint.hostname,
        node_name=endpoint.pod.spec.node_name or None,
        target_ref=endpoint.reference,
    )
