"""Services, EndpointSlices and Endpoints as their controllers read and write them."""

from __future__ import annotations

from typing import Final

import msgspec

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, ObjectReference, WireStruct

HEADLESS: Final = "None"
_FAMILIES: Final = ("IPv4", "IPv6")


class ServicePort(WireStruct):
    name: str = ""
    protocol: str = "TCP"
    port: int = 0
    target_port: int | str = 0
    """A port of the pods: its number, or its name in their containers."""
    app_protocol: str | None = None


class ServiceSpec(WireStruct):
    type: str = "ClusterIP"
    selector: dict[str, str] = {}
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    ip_families: list[str] = []
    ports: list[ServicePort] = []
    publish_not_ready_addresses: bool = False


class Service(Object):
    spec: ServiceSpec = ServiceSpec()

    @property
    def lists_pods(self) -> bool:
        """Whether controllers keep its endpoints; those of any other are left to who made them."""
        return bool(self.spec.selector) and self.spec.type != "ExternalName"

    @property
    def families(self) -> list[str]:
        """Of the addresses that are listed; the first one is that of the Service."""
        return [each for each in self.spec.ip_families if each in _FAMILIES] or ["IPv4"]

    @property
    def is_headless(self) -> bool:
        return self.spec.cluster_ip == HEADLESS


class EndpointConditions(WireStruct):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(WireStruct):
    addresses: list[str] = []
    conditions: EndpointConditions = EndpointConditions()
    hostname: str | None = None
    target_ref: ObjectReference | None = None
    node_name: str | None = None
    zone: str | None = None


class EndpointPort(WireStruct):
    """Of an EndpointSlice, where all have a name, or of Endpoints."""

    name: str = ""
    port: int = 0
    protocol: str = "TCP"
    app_protocol: str | None = None


class EndpointSlice(Object):
    address_type: str = ""
    endpoints: list[Endpoint] | None = None
    ports: list[EndpointPort] | None = None


class EndpointAddress(WireStruct):
    ip: str = ""
    hostname: str = ""
    node_name: str | None = None
    target_ref: ObjectReference | None = None


class EndpointSubset(WireStruct):
    """Addresses that have the same ports."""

    addresses: list[EndpointAddress] = []
    not_ready_addresses: list[EndpointAddress] = []
    ports: list[EndpointPort] = []


class Endpoints(Object):
    subsets: list[EndpointSubset] | None = None


SERVICES: Final = Kind("", "v1", "services", "Service", Service)
ENDPOINTS: Final = Kind("", "v1", "endpoints", "Endpoints", Endpoints)
ENDPOINT_SLICES: Final = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", EndpointSlice)
