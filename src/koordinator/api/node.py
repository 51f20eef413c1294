"""core/v1 Node, and the Lease that says that a node (or a leader) is alive."""

from __future__ import annotations

from typing import Final

import msgspec

from koordinator.api.constraints import RequiredText
from koordinator.api.meta import Object, WireStruct
from koordinator.api.pod import ResourceList
from koordinator.api.timestamps import Time


class Taint(WireStruct):
    """Keeps pods away that do not tolerate it."""

    key: RequiredText = ""
    """The name of the taint."""
    value: str = ""
    """The value that tolerations are compared with."""
    effect: RequiredText = ""
    """NoSchedule, PreferNoSchedule or NoExecute."""
    time_added: Time | None = None
    """When a NoExecute taint was added."""


class NodeSpec(WireStruct):
    unschedulable: bool = False
    taints: list[Taint] = []
    provider_id: str = ""


class NodeCondition(WireStruct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_heartbeat_time: Time | None = None
    last_transition_time: Time | None = None


class NodeAddress(WireStruct):
    type: str = ""
    address: str = ""


class ContainerImage(WireStruct):
    names: list[str] = []
    size_bytes: int = 0


class DaemonEndpoint(WireStruct):
    port: int = msgspec.field(default=0, name="Port")
    """The one field of Kubernetes that begins with a capital letter."""


class NodeDaemonEndpoints(WireStruct):
    kubelet_endpoint: DaemonEndpoint = DaemonEndpoint()


class NodeStatus(WireStruct):
    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: list[NodeCondition] = []
    addresses: list[NodeAddress] = []
    images: list[ContainerImage] = []
    daemon_endpoints: NodeDaemonEndpoints = NodeDaemonEndpoints()


class Node(Object):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


LEASE_NAMESPACE: Final = "kube-node-lease"
"""Where the leases of nodes are."""


class LeaseSpec(WireStruct):
    """Times are MicroTime texts: they are compared for change, not for value, by those that wait for a lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None
    preferred_holder: str | None = None
    strategy: str | None = None


class Lease(Object):
    spec: LeaseSpec = LeaseSpec()
