"""Kubelet's own API: which pods it runs, and how it is configured."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from koordinator.api import codec
from koordinator.api.meta import ObjectMeta, WireStruct
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.base.said_once import SaidOnce
from koordinator.node.cgroup_layout import CgroupDriver
from koordinator.node.errors import NodeError

logger = logging.getLogger(__name__)

ADDRESS_TYPES = ("Hostname", "InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS")

Get = Callable[[str], Awaitable[bytes]]
"""Sends GET for a path to the kubelet; raises KoordinatorError without a response, or for a status other than 200."""


class KubeletAddressError(NodeError):
    """The Node object does not say where its kubelet is."""


class KubeletResponseError(NodeError):
    """The response of the kubelet cannot be read."""


class _PodList(WireStruct):
    items: list[Pod] = []


class _RawPodList(WireStruct):
    items: list[msgspec.Raw] = []


class _Identified(WireStruct):
    metadata: ObjectMeta = ObjectMeta()


@dataclass(frozen=True, slots=True)
class KubeletConfiguration:
    """What the agent reads of the configuration; ``document`` is all of it."""

    cgroup_driver: CgroupDriver
    cgroup_root: str
    """``cgroupRoot``: below which cgroup those of pods are; empty for the root of all."""
    enforces_cpu_limits: bool
    """``cpuCFSQuota``: without it, no cgroup has a quota."""
    document: dict[str, Any]
    manages_memory: bool = False
    """``featureGates.MemoryQoS``: with cgroup version 2, memory.high, memory.min and memory.low of pods are its own."""


class Kubelet:
    """Queries one kubelet."""

    def __init__(self, get: Get) -> None:
        self._get = get
        self._digest = b""
        self._pods: tuple[Pod, ...] = ()
        self._said = SaidOnce(logger)

    async def pods(self) -> Sequence[Pod]:
        """The pods on the node, static ones with the UIDs that their cgroups have.

        The same sequence as before while the kubelet returns the same bytes. A pod that cannot be read is named and
        left out; KubeletResponseError for what is no list.
        """
        body = await self._get("/pods/")
        digest = hashlib.blake2b(body, digest_size=16).digest()
        if digest != self._digest:
            with self._said.round():
                self._pods = tuple(pod for pod in self._listed(body) if self._is_usable(pod))
            self._digest = digest
        return self._pods

    def _listed(self, body: bytes) -> Iterator[Pod]:
        try:
            yield from codec.decode(body, _PodList).items
        except codec.DecodeError:
            yield from self._listed_one_by_one(body)

    def _listed_one_by_one(self, body: bytes) -> Iterator[Pod]:
        try:
            items = codec.decode(body, _RawPodList).items
        except codec.DecodeError as error:
            raise KubeletResponseError(f"kubelet's /pods/: {error}") from error
        for item in items:
            try:
                yield codec.decode(item, Pod)
            except codec.DecodeError as error:
                self._said.say(f"kubelet's /pods/: pod {_key(item)} cannot be read and is left out: {error}")

    def _is_usable(self, pod: Pod) -> bool:
        """Whether its cgroup can have the name that its UID makes."""
        uid = pod.metadata.uid
        if "/" not in uid and "\0" not in uid:
            return True
        self._said.say(f"kubelet's /pods/: pod {pod.metadata.key} has the UID {uid!r} and is left out")
        return False

    async def configuration(self) -> KubeletConfiguration:
        """What ``/configz`` shows; KubeletResponseError if it shows no configuration."""
        try:
            document = codec.decode_any(await self._get("/configz"))
        except codec.DecodeError as error:
            raise KubeletResponseError(f"kubelet's /configz: {error}") from error
        configuration = document.get("kubeletconfig") if isinstance(document, dict) else None
        if not isinstance(configuration, dict):
            raise KubeletResponseError("kubelet's /configz has no kubeletconfig")
        return kubelet_configuration(configuration)


def _key(item: msgspec.Raw) -> str:
    try:
        return codec.decode(item, _Identified).metadata.key
    except codec.DecodeError:
        return "without readable metadata"


def kubelet_configuration(document: dict[str, Any]) -> KubeletConfiguration:
    """What a KubeletConfiguration (kubelet.config.k8s.io/v1beta1) means; the rest has the kubelet's defaults."""
    is_systemd = document.get("cgroupDriver") == CgroupDriver.SYSTEMD
    return KubeletConfiguration(
        cgroup_driver=CgroupDriver.SYSTEMD if is_systemd else CgroupDriver.CGROUPFS,
        cgroup_root=str(document.get("cgroupRoot") or "").strip("/"),
        enforces_cpu_limits=document.get("cpuCFSQuota") is not False,
        document=document,
        manages_memory=_manages_memory(document),
    )


def _manages_memory(document: dict[str, Any]) -> bool:
    """From Kubernetes 1.36 on, the gate need not be set for that: it is on in 1.37, and what is to be written says so.
    That has no default there; before, a configuration with the default of the factor has no policy."""
    gates = document.get("featureGates")
    gate = gates.get("MemoryQoS") if isinstance(gates, dict) else None
    if gate is not None:
        return gate is True
    policy = document.get("memoryReservationPolicy")
    return policy == "TieredReservation" or (policy is not None and document.get("memoryThrottlingFactor") is not None)


def kubelet_url(node: Node, address_type: str, read_only_port: int | None = None) -> str:
    """Where to reach a node's kubelet: its secure port unless a read-only one is given.

    KubeletAddressError if the node has no address of that type (InternalIP for a type that does not exist), or does not
    say its port.
    """
    wanted = address_type if address_type in ADDRESS_TYPES else "InternalIP"
    address = next((item.address for item in node.status.addresses if item.type == wanted), "")
    if not address:
        raise KubeletAddressError(f"node {node.metadata.name}: status.addresses has none of the type {wanted}")
    host = f"[{address}]" if ":" in address else address
    if read_only_port is not None:
        return f"http://{host}:{read_only_port}"
    port = node.status.daemon_endpoints.kubelet_endpoint.port
    if not port:
        raise KubeletAddressError(f"node {node.metadata.name}: status.daemonEndpoints.kubeletEndpoint.Port is not set")
    return f"https://{host}:{port}"
