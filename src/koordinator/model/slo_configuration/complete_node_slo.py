"""The policy that an agent enforces: its NodeSLO completed with defaults for everything that the object leaves out.

koord-manager writes into a NodeSLO what the user has configured. The defaults of the other fields are the agent's
(pkg/koordlet/statesinformer/impl/states_nodeslo.go, mergeNodeSLOSpec).
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from koordinator.api.codec import to_document
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.api.resource_qos import CPUQoS, MemoryQoS, ResctrlQoS, ResourceQoS, ResourceQoSStrategy
from koordinator.api.struct_fields import struct_fields
from koordinator.model.slo_configuration.configuration_keys import CPU_BURST, RESOURCE_THRESHOLD, SYSTEM
from koordinator.model.slo_configuration.documents import overridden, read_given
from koordinator.model.slo_configuration.quality_of_service_defaults import (
    NEUTRAL_CPU_QOS,
    NEUTRAL_MEMORY_QOS,
    NEUTRAL_RESCTRL_QOS,
    RECOMMENDED_RESOURCE_QOS,
)

S = TypeVar("S", bound=msgspec.Struct)


def complete_node_slo_spec(spec: NodeSLOSpec) -> NodeSLOSpec:
    """The spec with the agent's defaults in every section, so that none of its four strategies is None.

    Written fields take precedence over the defaults, field by field; lists are taken as a whole. A feature of LSR, LS
    or BE pods that is disabled has the values that undo it, whatever is written beside the switch. Host applications
    and extensions are as they were.
    """
    return msgspec.structs.replace(
        spec,
        resource_used_threshold_with_be=_filled(RESOURCE_THRESHOLD.defaults, spec.resource_used_threshold_with_be),
        resource_qos_strategy=_neutral_where_off(_filled(RECOMMENDED_RESOURCE_QOS, spec.resource_qos_strategy)),
        cpu_burst_strategy=_filled(CPU_BURST.defaults, spec.cpu_burst_strategy),
        system_strategy=_filled(SYSTEM.defaults, spec.system_strategy),
    )


def _filled(defaults: S, given: S | None) -> S:
    return defaults if given is None else overridden(defaults, read_given(to_document(given), type(defaults)))


def _neutral_where_off(strategy: ResourceQoSStrategy) -> ResourceQoSStrategy:
    return msgspec.structs.replace(
        strategy,
        lsr_class=_neutral_features(strategy.lsr_class),
        ls_class=_neutral_features(strategy.ls_class),
        be_class=_neutral_features(strategy.be_class),
    )


def _neutral_features(qos: ResourceQoS | None) -> ResourceQoS | None:
    if qos is None:
        return None
    changes: dict[str, CPUQoS | MemoryQoS | ResctrlQoS] = {}
    if qos.cpu_qos is not None and qos.cpu_qos.enable is False:
        changes["cpu_qos"] = _with_values_of(qos.cpu_qos, NEUTRAL_CPU_QOS)
    if qos.memory_qos is not None and qos.memory_qos.enable is False:
        changes["memory_qos"] = _with_values_of(qos.memory_qos, NEUTRAL_MEMORY_QOS)
    if qos.resctrl_qos is not None and qos.resctrl_qos.enable is False:
        changes["resctrl_qos"] = _with_values_of(qos.resctrl_qos, NEUTRAL_RESCTRL_QOS)
    return msgspec.structs.replace(qos, **changes)


def _with_values_of(configuration: S, values: msgspec.Struct) -> S:
    return msgspec.structs.replace(
        configuration, **{field.name: getattr(values, field.name) for field in struct_fields(type(values))}
    )
