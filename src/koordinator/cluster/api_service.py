"""The Service ``default/kubernetes``, by which clients in a cluster find its API, with the address of this server.

The conformance tests of Kubernetes begin with it. A start corrects its endpoints, as the port may have changed.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.service_addresses import CLUSTER_IPS
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import API_SERVER, WriteOptions
from koordinator.cluster.verbs.target import Target, decode
from koordinator.cluster.verbs.update import update

_NAME: Final = "kubernetes"
_NAMESPACE: Final = "default"
_PORT: Final = {"name": "https", "protocol": "TCP"}


async def publish_api(environment: Environment, address: str, port: int) -> None:
    """Create what is missing, and correct what names another address or port."""
    await _publish_service(environment, port)
    await _put(environment, "", "endpoints", _endpoints(address, port))
    await _put(environment, "discovery.k8s.io", "endpointslices", _slice(address, port))


async def _publish_service(environment: Environment, port: int) -> None:
    target = _target(environment, "", "services")
    if environment.storage.get(target.key) is not None:
        return
    try:
        # Those who know no name service find it at the first address.
        await _create(environment, target, _service(port, clusterIP=str(CLUSTER_IPS[1])))
    except ApiError as error:
        if error.reason != "Invalid":
            raise
        # In a cluster of an older version another Service may have it.
        await _create(environment, target, _service(port))


async def _put(environment: Environment, group: str, plural: str, body: Document) -> None:
    target = _target(environment, group, plural)
    stored = environment.storage.get(target.key)
    if stored is None:
        await _create(environment, target, body)
        return
    found = decode(target.resource, stored)
    content = {name: value for name, value in body.items() if name != "metadata"}
    if any(found.get(name) != value for name, value in content.items()):
        await update(environment, target, {**found, **content}, WriteOptions(user_agent=API_SERVER))


async def _create(environment: Environment, target: Target, body: Document) -> None:
    await create(environment, target, body, WriteOptions(user_agent=API_SERVER))


def _target(environment: Environment, group: str, plural: str) -> Target:
    resource = environment.registry.stored(group, plural)
    assert resource is not None
    return Target(resource, _NAMESPACE, _NAME)


def _metadata(labels: dict[str, str]) -> Document:
    return {"name": _NAME, "namespace": _NAMESPACE, "labels": labels}


def _service(port: int, **spec: str) -> Document:
    ports = [{**_PORT, "port": 443, "targetPort": port}]
    return {
        "metadata": _metadata({"component": "apiserver", "provider": "kubernetes"}),
        "spec": {"ports": ports, **spec},
    }


def _endpoints(address: str, port: int) -> Document:
    subset = {"addresses": [{"ip": address}], "ports": [{**_PORT, "port": port}]}
    return {"metadata": _metadata({"endpointslice.kubernetes.io/skip-mirror": "true"}), "subsets": [subset]}


def _slice(address: str, port: int) -> Document:
    return {
        "metadata": _metadata({"kubernetes.io/service-name": _NAME}),
        "addressType": f"IPv{ipaddress.ip_address(address).version}",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{**_PORT, "port": port}],
    }
