"""The JSON Schema of the chart's value ``slo``, from the types of the SLO ConfigMap: names, types and ranges.

It is stricter than koord-manager, which warns of names that it does not know: a value of a chart is new, and nobody has
to keep one that means nothing. null is allowed everywhere, and means what a field that is left out means.
"""

from __future__ import annotations

from typing import Any, Final, get_args, get_origin

import msgspec

from koordinator.api import slo_controller_config as keys
from koordinator.api.adaptive_slo import AdaptiveSLOStrategy
from koordinator.api.colocation_strategy import ColocationStrategy
from koordinator.api.cpu_burst import CPUBurstStrategy
from koordinator.api.cpu_normalization import CPUNormalizationStrategy
from koordinator.api.duration import GoDuration
from koordinator.api.host_application import HostApplicationSpec
from koordinator.api.manifests.schema import QUANTITY_PATTERN
from koordinator.api.meta import EXTENSIONS_MEMBER, LabelSelector, WireStruct
from koordinator.api.quantity import Quantity
from koordinator.api.resource_amplification import ResourceAmplificationStrategy
from koordinator.api.resource_qos import ResourceQoSStrategy
from koordinator.api.resource_threshold import ResourceThresholdStrategy
from koordinator.api.struct_fields import StructField, bare_type, struct_fields
from koordinator.api.system_strategy import SystemStrategy

JSONSchema = dict[str, Any]


class _HostApplications(WireStruct):
    applications: list[HostApplicationSpec] = []


INLINE: Final[dict[str, type[msgspec.Struct]]] = {
    keys.COLOCATION: ColocationStrategy,
    keys.HOST_APPLICATION: _HostApplications,
    keys.CPU_NORMALIZATION: CPUNormalizationStrategy,
    keys.RESOURCE_AMPLIFICATION: ResourceAmplificationStrategy,
}
"""Keys whose strategy for the cluster stands beside ``nodeConfigs``."""
SEPARATE: Final[dict[str, type[msgspec.Struct]]] = {
    keys.RESOURCE_THRESHOLD: ResourceThresholdStrategy,
    keys.RESOURCE_QOS: ResourceQoSStrategy,
    keys.CPU_BURST: CPUBurstStrategy,
    keys.SYSTEM: SystemStrategy,
    keys.ADAPTIVE_SLO: AdaptiveSLOStrategy,
}
"""Keys whose strategy for the cluster stands below ``clusterStrategy``, beside ``nodeStrategies``."""
_SIMPLE: Final[dict[Any, JSONSchema]] = {
    str: {"type": ["string", "null"]},
    bool: {"type": ["boolean", "null"]},
    int: {"type": ["integer", "null"]},
    float: {"type": ["number", "null"]},
    GoDuration: {"type": ["string", "null"]},
    Quantity: {"type": ["string", "number", "null"], "pattern": QUANTITY_PATTERN},
}
_SHARES_OF_NODES: Final = frozenset(
    {
        "cpuReclaimThresholdPercent",
        "memoryReclaimThresholdPercent",
        "batchCPUThresholdPercent",
        "batchMemoryThresholdPercent",
    }
)
"""Percentages without an upper bound in the original. A node that lends more than it has is a slip of the pen here;
who means it writes the ConfigMap."""
_WHOLE_NODE: Final = 100


def slo_schema() -> tuple[JSONSchema, JSONSchema]:
    """The schema of ``slo``, and the definitions that it refers to by ``#/$defs/NAME``."""
    definitions: JSONSchema = {}
    of_key = {key: _inline(strategy, definitions) for key, strategy in INLINE.items()}
    of_key |= {key: _separate(strategy, definitions) for key, strategy in SEPARATE.items()}
    return _closed({key: of_key[key] for key in sorted(of_key)}), dict(sorted(definitions.items()))


def _inline(strategy: type[msgspec.Struct], definitions: JSONSchema) -> JSONSchema:
    fields = _properties(strategy, definitions)
    return _closed({**fields, "nodeConfigs": _groups(fields, definitions)})


def _separate(strategy: type[msgspec.Struct], definitions: JSONSchema) -> JSONSchema:
    groups = _groups(_properties(strategy, definitions), definitions)
    return _closed({"clusterStrategy": _of_type(strategy, definitions), "nodeStrategies": groups})


def _groups(fields: JSONSchema, definitions: JSONSchema) -> JSONSchema:
    """Of nodes, each with what it sets."""
    selector = _of_type(LabelSelector, definitions)
    entry = _closed({"name": _SIMPLE[str], "nodeSelector": selector, **fields})
    return {"type": ["array", "null"], "items": entry}


def _closed(properties: JSONSchema) -> JSONSchema:
    return {"type": ["object", "null"], "properties": properties, "additionalProperties": False}


def _properties(struct: type[msgspec.Struct], definitions: JSONSchema) -> JSONSchema:
    found = {field.wire_name: _of_field(field, definitions) for field in struct_fields(struct)}
    return found | ({EXTENSIONS_MEMBER: {}} if "extensions" in found else {})


def _of_field(field: StructField, definitions: JSONSchema) -> JSONSchema:
    """The narrower of what admission allows and of what the resource that the field ends up in does."""
    schema = _of_type(field.type, definitions)
    bounds = schema.get("additionalProperties", schema)
    low = [each.minimum for each in (field.schema, field.admission) if each.minimum is not None]
    high = [each.maximum for each in (field.schema, field.admission) if each.maximum is not None]
    high += [_WHOLE_NODE] if field.wire_name in _SHARES_OF_NODES else []
    bounds |= ({"minimum": max(low)} if low else {}) | ({"maximum": min(high)} if high else {})
    if field.schema.enum:
        # Where Go's types are not pointers, an empty text is one that is left out.
        return {"enum": [*field.schema.enum, *([""] if field.default == "" else []), None]}
    return schema


def _of_type(hint: Any, definitions: JSONSchema) -> JSONSchema:
    bare, _, _ = bare_type(hint)
    if bare in _SIMPLE:
        return dict(_SIMPLE[bare])
    if get_origin(bare) is list:
        return {"type": ["array", "null"], "items": _of_type(get_args(bare)[0], definitions)}
    if get_origin(bare) is dict:
        value = get_args(bare)[1]
        return {"type": ["object", "null"]} | (
            {} if value is Any else {"additionalProperties": _of_type(value, definitions)}
        )
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        if bare.__name__ not in definitions:
            definitions[bare.__name__] = {}  # it may be part of itself
            definitions[bare.__name__] = _closed(_properties(bare, definitions))
        return {"$ref": f"#/$defs/{bare.__name__}"}
    members = [member for member in get_args(bare) if member is not type(None)]
    return {"type": [*(kind for each in members for kind in _SIMPLE[each]["type"] if kind != "null"), "null"]}
