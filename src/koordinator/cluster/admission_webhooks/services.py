"""From a Service reference to an address.

No network of Services exists in an embedded cluster: nothing routes a cluster IP. What the objects say is enough,
though: the first ready address of an EndpointSlice or of the Endpoints object, which for a webhook on this machine is
a loopback one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.admission_webhooks.configuration import ServiceReference
from koordinator.cluster.admission_webhooks.failures import quoted
from koordinator.cluster.registry import Registry
from koordinator.cluster.storage.interface import Storage
from koordinator.cluster.verbs.encoding import decode

_SERVICE_NAME: Final = "kubernetes.io/service-name"
_ROUTED: Final = ("ClusterIP", "NodePort", "LoadBalancer")


class ServiceError(KoordinatorError):
    """A Service that leads nowhere; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int


class ServiceResolver:
    """Reads Services and their endpoints anew for each call: a webhook that moves is found at once."""

    def __init__(self, storage: Storage, registry: Registry) -> None:
        self._storage = storage
        self._registry = registry

    def resolve(self, reference: ServiceReference) -> Address:
        """Raises ServiceError."""
        service = self._get("", "services", reference)
        if service is None:
            raise ServiceError(f"service {quoted(reference.name)} not found")
        spec = service["spec"]
        if spec.get("type") not in _ROUTED:
            raise ServiceError(f"unsupported service type {quoted(spec.get('type') or '')}")
        port_name = _port_name(spec, reference)
        for address in (*self._in_slices(reference, port_name), *self._in_endpoints(reference, port_name)):
            return address
        if spec.get("clusterIP") not in (None, "", "None"):
            return Address(spec["clusterIP"], reference.port)
        raise ServiceError(
            f"no endpoints available for service {quoted(reference.name)}: nothing in an embedded cluster makes them; "
            f"create Endpoints or an EndpointSlice for {reference.namespace}/{reference.name} with a loopback address"
        )

    def _get(self, group: str, plural: str, reference: ServiceReference) -> Document | None:
        resource = self._registry.stored(group, plural)
        assert resource is not None
        stored = self._storage.get(resource.storage_key(reference.namespace, reference.name))
        return None if stored is None else decode(resource, stored)

    def _in_slices(self, reference: ServiceReference, port_name: str) -> Iterator[Address]:
        resource = self._registry.stored("discovery.k8s.io", "endpointslices")
        assert resource is not None
        for stored in self._storage.list(resource.storage_prefix(reference.namespace)).items:
            found = decode(resource, stored)
            if (found["metadata"].get("labels") or {}).get(_SERVICE_NAME) != reference.name:
                continue
            endpoints = found.get("endpoints") or []
            ready = [e for e in endpoints if (e.get("conditions") or {}).get("ready") is not False]
            hosts = [endpoint["addresses"][0] for endpoint in ready if endpoint.get("addresses")]
            yield from _addresses(hosts, found.get("ports") or [], port_name)

    def _in_endpoints(self, reference: ServiceReference, port_name: str) -> Iterator[Address]:
        found = self._get("", "endpoints", reference) or {}
        for subset in found.get("subsets") or []:
            hosts = [address["ip"] for address in subset.get("addresses") or []]
            yield from _addresses(hosts, subset.get("ports") or [], port_name)


def _port_name(spec: Document, reference: ServiceReference) -> str:
    for port in spec.get("ports") or []:
        if port.get("port") == reference.port:
            return port.get("name") or ""
    raise ServiceError(f"no service port {reference.port} found for service {quoted(reference.name)}")


def _addresses(hosts: list[str], ports: list[dict[str, Any]], port_name: str) -> Iterator[Address]:
    numbers = [port["port"] for port in ports if (port.get("name") or "") == port_name and port.get("port")]
    return (Address(host, number) for number in numbers for host in hosts)
