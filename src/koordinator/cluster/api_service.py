"""The Service by which programs in a cluster find its API server, and the objects that show the cluster IPs.

A real server has the IPAddress of a Service before the Service; here they follow the Services that are stored, which
alone say what is taken (``service_addresses``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import closing
from typing import Final

import msgspec

from koordinator.api.document import Document
from koordinator.api.timestamps import format_time
from koordinator.cluster.background import LoopBody
from koordinator.cluster.errors import ApiError
from koordinator.cluster.resource import Resource
from koordinator.cluster.service_addresses import CLUSTER_IPS
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.strategy.service import HEADLESS
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.delete import delete
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import API_SERVER, DeleteOptions, WriteOptions
from koordinator.cluster.verbs.target import Target, decode
from koordinator.cluster.verbs.update import modify

LOOP: Final = "ip-addresses"
_NAME: Final = "kubernetes"
_NAMESPACE: Final = "default"
_NETWORKING: Final = "networking.k8s.io"
_FAMILY: Final = "ipaddress.kubernetes.io/ip-family"
_MANAGED: Final = {_FAMILY: "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}
_FOUND: Final = (404, 409)
"""Somebody else was faster."""


async def create_api_service(environment: Environment, address: str, port: int) -> None:
    """Creates what is missing, and lets the rest follow the port; puts IPAddresses right, too."""
    for group, plural, obj in _objects(address, port):
        await _ensure(environment, group, plural, obj)
    await _ensure_range(environment)
    addresses = IpAddresses(environment)
    await addresses.compare(environment.storage.list(addresses.services.prefix).items)


def _objects(address: str, port: int) -> Iterable[tuple[str, str, Document]]:
    metadata = {"name": _NAME, "namespace": _NAMESPACE}
    https = {"name": "https", "protocol": "TCP"}
    spec = {
        "type": "ClusterIP",
        "clusterIP": str(CLUSTER_IPS[1]),
        "ports": [{**https, "port": 443, "targetPort": port}],
        "sessionAffinity": "None",
    }
    labels = {"component": "apiserver", "provider": _NAME}
    yield "", "services", {"metadata": {**metadata, "labels": labels}, "spec": spec}
    skipped = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    subset = {"addresses": [{"ip": address}], "ports": [{**https, "port": port}]}
    yield "", "endpoints", {"metadata": {**metadata, "labels": skipped}, "subsets": [subset]}
    of_service = {"kubernetes.io/service-name": _NAME}
    parts = {
        "addressType": "IPv6" if ":" in address else "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{**https, "port": port}],
    }
    yield "discovery.k8s.io", "endpointslices", {"metadata": {**metadata, "labels": of_service}, **parts}


async def _ensure(environment: Environment, group: str, plural: str, obj: Document) -> None:
    target = Target(_resource(environment, group, plural), _NAMESPACE, _NAME)
    options = WriteOptions(user_agent=API_SERVER)
    if environment.storage.get(target.key) is not None:
        await modify(environment, target, lambda old: _following(old, obj), options)
        return
    try:
        await create(environment, target, obj, options)
    except ApiError as error:
        if error.code != 422 or "clusterIP" not in (obj.get("spec") or {}):
            raise
        # An older cluster may have given the address to another Service.
        del obj["spec"]["clusterIP"]
        await create(environment, target, obj, options)


def _following(old: Document, wanted: Document) -> Document:
    if "spec" in wanted:
        return {**old, "spec": {**old["spec"], "ports": wanted["spec"]["ports"]}}
    return {**old, **{name: value for name, value in wanted.items() if name != "metadata"}}


async def _ensure_range(environment: Environment) -> None:
    target = Target(_resource(environment, _NETWORKING, "servicecidrs"), None, _NAME)
    if environment.storage.get(target.key) is not None:
        return
    options = WriteOptions(user_agent=API_SERVER)
    await create(environment, target, {"metadata": {"name": _NAME}, "spec": {"cidrs": [str(CLUSTER_IPS)]}}, options)
    condition = {
        "type": "Ready",
        "status": "True",
        "lastTransitionTime": format_time(environment.clock.now()),
        "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
    }
    status = Target(target.resource, None, _NAME, "status")
    await modify(environment, status, lambda old: {**old, "status": {"conditions": [condition]}}, options)


def _resource(environment: Environment, group: str, plural: str) -> Resource:
    resource = environment.registry.stored[group, plural]
    assert resource is not None
    return resource


# IPAddresses.


class _Spec(msgspec.Struct, rename="camel"):
    cluster_ips: list[str] | None = msgspec.field(default=None, name="clusterIPs")


class _Service(msgspec.Struct):
    spec: _Spec


class IpAddresses:
    """One loop: each cluster IP of a Service has an IPAddress."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.services = _resource(environment, "", "services")
        self._addresses = _resource(environment, _NETWORKING, "ipaddresses")

    def loops(self) -> Mapping[str, LoopBody]:
        return {LOOP: self._run}

    async def _run(self) -> AsyncIterator[None]:
        storage, prefix = self._environment.storage, self.services.prefix
        page = storage.list(prefix)
        with closing(storage.watch(prefix, page.revision)) as cursor:
            await self.compare(page.items)
            yield
            while (changes := await cursor.next()) is not None:
                for change in changes:
                    held = set() if change.type == "deleted" else _cluster_ips(change.current)
                    before = _cluster_ips(change.previous) if change.previous is not None else set()
                    for address in sorted(before - held):
                        await self._remove(address)
                    for address in sorted(held - before):
                        await self._add(address, change.current.key)
                yield

    async def compare(self, services: Iterable[Stored]) -> None:
        """Make up for what has changed while nobody looked; ``services`` are all that there are."""
        wanted = {address: stored.key for stored in services for address in _cluster_ips(stored)}
        for stored in self._environment.storage.list(self._addresses.prefix).items:
            found = decode(self._addresses, stored)
            address = found["metadata"]["name"]
            if _is_ours(found) and (address not in wanted or found["spec"] != self._spec(wanted[address])):
                await self._remove(address)
        for address, key in wanted.items():
            await self._add(address, key)

    def _spec(self, key: str) -> Document:
        namespace, _, name = key.removeprefix(self.services.prefix).partition("/")
        return {"parentRef": {"resource": "services", "namespace": namespace, "name": name}}

    async def _add(self, address: str, key: str) -> None:
        labels = {**_MANAGED, _FAMILY: "IPv6" if ":" in address else "IPv4"}
        obj = {"metadata": {"name": address, "labels": labels}, "spec": self._spec(key)}
        target = Target(self._addresses, None, address)
        if self._environment.storage.get(target.key) is not None:
            return
        try:
            await create(self._environment, target, obj, WriteOptions(user_agent=API_SERVER))
        except ApiError as error:
            if error.code not in _FOUND:
                raise

    async def _remove(self, address: str) -> None:
        target = Target(self._addresses, None, address)
        stored = self._environment.storage.get(target.key)
        if stored is None or not _is_ours(decode(self._addresses, stored)):
            return
        try:
            await delete(self._environment, target, DeleteOptions())
        except ApiError as error:
            if error.code not in _FOUND:
                raise


def _is_ours(found: Document) -> bool:
    labels = found["metadata"].get("labels") or {}
    return all(labels.get(name) == text for name, text in _MANAGED.items() if name != _FAMILY)


def _cluster_ips(stored: Stored) -> set[str]:
    """Nothing where it cannot be read, which only a damaged store has."""
    try:
        addresses = msgspec.json.decode(stored.value, type=_Service).spec.cluster_ips or ()
    except msgspec.DecodeError:
        return set()
    return {address for address in addresses if address != HEADLESS}
