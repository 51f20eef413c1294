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
    resource_used_threshold_with_be: ResourceThresholdStrategy | None = msgspec.field(
        default=None, name="resourceUsedThresholdWithBE"
    )
    resource_qos_strategy: ResourceQoSStrategy | None = msgspec.field(default=None, name="resourceQOSStrategy")
    cpu_burst_strategy: CPUBurstStrategy | None = None
    system_strategy: SystemStrategy | None = None
    extensions: Annotated[FreeForm | None, Schema(preserve_unknown_fields=True)] = None
    host_applications: list[HostApplicationSpec] = []


class NodeSLOStatus(WireStruct):
    """Empty."""


class NodeSLO(Object):
    spec: NodeSLOSpec = NodeSLOSpec()
    status: NodeSLOStatus = NodeSLOStatus()
