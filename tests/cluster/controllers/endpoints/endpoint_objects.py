"""Services and the pods that they select."""

from __future__ import annotations

from typing import Any

import msgspec

from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Container, ContainerPort, Pod
from koordinator.cluster.controllers.endpoints.types import Service, ServicePort, ServiceSpec
from tests.cluster.controllers.objects import LABELS, NOW, pod


def service(*ports: ServicePort, **spec: Any) -> Service:
    given = {"selector": LABELS, "ports": list(ports) or [ServicePort(port=80)], **spec}
    return Service(metadata=ObjectMeta(name="web", namespace="default", uid="service"), spec=ServiceSpec(**given))


def endpoint_pod(name: str, address: str, *, ready: bool = True, going: bool = False, http: int = 8080) -> Pod:
    made = pod(name, ready=NOW if ready else None)
    containers = [Container(name="c", ports=[ContainerPort(name="http", container_port=http)])]
    replace = msgspec.structs.replace
    return replace(
        made,
        metadata=replace(made.metadata, deletion_timestamp=NOW if going else None),
        spec=replace(made.spec, containers=containers),
        status=replace(made.status, pod_ip=address),
    )
