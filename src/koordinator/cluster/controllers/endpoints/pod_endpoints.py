"""Which pods are endpoints of a Service, in what state, and under which ports; pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from koordinator.api.meta import ObjectReference
from koordinator.api.pod import Pod, is_finished
from koordinator.cluster.controllers.endpoints.types import EndpointPort, Service, ServicePort
from koordinator.cluster.controllers.pod_state import is_ready

HEADLESS_LABEL: Final = "service.kubernetes.io/headless"
Ports = tuple[EndpointPort, ...]


@dataclass(frozen=True, slots=True)
class PodEndpoint:
    """A pod that has an address."""

    pod: Pod
    is_ready: bool
    """Whether it counts as ready; ``serving`` says whether it is."""
    serving: bool
    terminating: bool
    hostname: str
    """Its name within the Service; empty if it has none there."""
    ports: Ports
    """Without those whose name the pod does not have."""

    @property
    def address(self) -> str:
        return self.pod.status.pod_ip

    @property
    def family(self) -> str:
        """Of the address: ``IPv4`` or ``IPv6``."""
        return f"IPv{ipaddress.ip_address(self.address).version}"

    @property
    def reference(self) -> ObjectReference:
        metadata = self.pod.metadata
        return ObjectReference(kind="Pod", namespace=metadata.namespace, name=metadata.name, uid=metadata.uid)


def pod_endpoints(service: Service, pods: Iterable[Pod]) -> list[PodEndpoint]:
    """Of the pods that the Service selects, those that have not ended and have an address, in its order."""
    found = (_endpoint(service, pod) for pod in pods if not is_finished(pod) and _has_address(pod))
    return sorted(found, key=lambda each: (each.address, each.pod.metadata.name))


def _has_address(pod: Pod) -> bool:
    """What is no address, which only someone else than a kubelet writes, is none."""
    try:
        ipaddress.ip_address(pod.status.pod_ip)
    except ValueError:
        return False
    return True


def _endpoint(service: Service, pod: Pod) -> PodEndpoint:
    serving, terminating = is_ready(pod), pod.metadata.deletion_timestamp is not None
    is_named = bool(pod.spec.hostname) and pod.spec.subdomain == service.metadata.name
    return PodEndpoint(
        pod,
        is_ready=service.spec.publish_not_ready_addresses or (serving and not terminating),
        serving=serving,
        terminating=terminating,
        hostname=pod.spec.hostname if is_named else "",
        ports=_ports(service, pod),
    )


def _ports(service: Service, pod: Pod) -> Ports:
    numbers = ((port, _number(port, pod)) for port in service.spec.ports)
    return tuple(
        EndpointPort(name=port.name, port=number, protocol=port.protocol, app_protocol=port.app_protocol)
        for port, number in numbers
        if number
    )


def _number(port: ServicePort, pod: Pod) -> int:
    """0 if no container of the pod has a port of that name and protocol."""
    target = port.target_port
    if isinstance(target, int):
        return target or port.port
    sidecars = (each for each in pod.spec.init_containers if each.restart_policy == "Always")
    offered = (each for container in (*pod.spec.containers, *sidecars) for each in container.ports)
    return next((each.container_port for each in offered if (each.name, each.protocol) == (target, port.protocol)), 0)


def service_labels(service: Service) -> dict[str, str]:
    """The labels of what lists the pods of a Service, beside those that say whose it is."""
    given = {key: value for key, value in service.metadata.labels.items() if key != HEADLESS_LABEL}
    return given | ({HEADLESS_LABEL: ""} if service.is_headless else {})
