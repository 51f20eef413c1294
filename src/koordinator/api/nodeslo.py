"""slo.koordinator.sh NodeSLO: the quality-of-service policy that one node's agent enforces."""

from __future__ import annotations

from typing import Annotated

import msgspec

from koordinator.api.constraints import Schema
from koordinator.api.cpu_burst import CPUBurstStrategy
from koordinator.api.host_application import HostApplicationSpec
from koordinator.api.meta import FreeForm, Object, WireStruct
from koordinator.api.resource_qos import ResourceQoSStrategy
from koordinator.api.resource_threshold import ResourceThresholdStrategy
from koordinator.api.system_strategy import SystemStrategy


class NodeSLOSpec(WireStruct):
    """The policy, put together by koord-manager out of the ConfigMap slo-controller-config."""

    resource_used_threshold_with_be: ResourceThresholdStrategy | None = msgspec.field(
        default=None, name="resourceUsedThresholdWithBE"
    )
    """From which use of the node its best-effort pods are throttled or evicted."""
    resource_qos_strategy: ResourceQoSStrategy | None = msgspec.field(default=None, name="resourceQOSStrategy")
    """What each class of pods gets of the kernel's means of isolation."""
    cpu_burst_strategy: CPUBurstStrategy | None = None
    """How far containers may exceed their CPU limit for a moment."""
    system_strategy: SystemStrategy | None = None
    """Kernel settings of the node as a whole."""
    extensions: Annotated[FreeForm | None, Schema(preserve_unknown_fields=True)] = None
    """Policies of other programs."""
    host_applications: list[HostApplicationSpec] = []
    """Programs that run on the node beside Kubernetes."""


class NodeSLOStatus(WireStruct):
    """Empty."""


class NodeSLO(Object):
    """The quality-of-service policy that the agent of one node enforces; it is named like the node."""

    spec: NodeSLOSpec = NodeSLOSpec()
    status: NodeSLOStatus = NodeSLOStatus()
