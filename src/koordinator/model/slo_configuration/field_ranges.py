"""Checks the numbers of a strategy against their bounds, with the messages of the original's validator.

The result maps a field's path, in the names of the original's Go types, to an English text (go-playground/validator
with its English translations). The bounds are those of ``Admission`` on the wire types, and of their CRD where
admission has none. A field that was not written is not checked. A field that has to be above or below another is
compared with the other's value in force, be it written, inherited or a built-in default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from koordinator.api.cpu_burst import CPUBurstConfig
from koordinator.api.resource_qos import BlkioQoS, CPUQoS, MemoryQoS, NetworkQoS, ResctrlQoS
from koordinator.api.struct_fields import StructField, struct_fields

_FIRST_WORD: Final = re.compile(r"[a-z]+")
_INITIALISMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cpu": "CPU",
        "cfs": "CFS",
        "cat": "CAT",
        "mba": "MBA",
        "lsr": "LSR",
        "ls": "LS",
        "be": "BE",
        "blkio": "BlkIO",
        "io": "IO",
    }
)
_EMBEDDED: Final[Mapping[type[msgspec.Struct], str]] = MappingProxyType(
    {
        CPUQoS: "CPUQOS",
        MemoryQoS: "MemoryQOS",
        BlkioQoS: "BlkIOQOS",
        ResctrlQoS: "ResctrlQOS",
        NetworkQoS: "NetworkQOS",
        CPUBurstConfig: "CPUBurstConfig",
    }
)
"""Structs whose fields Go embeds where ours inherit them: a path passes through their names."""
_ABOVE_ZERO: Final = frozenset(
    {"cpuEvictTimeWindowSeconds", "minFreeKbytesFactor", "watermarkScaleFactor", "resourceDiffThreshold"}
)
"""Fields for which the validator writes "greater than 0" and not "1 or greater"."""
_DERIVED: Final = frozenset({"memory_evict_lower_percent", "cpu_evict_lower_percent"})
"""Where these have no value, koordlet takes the threshold minus 2."""


def range_errors(written: msgspec.Struct, in_force: msgspec.Struct, path: str) -> dict[str, str]:
    """Path -> what is wrong, for all fields of ``written``; ``in_force`` is the same strategy with all it inherits."""
    return dict(_struct_errors(written, in_force, path))


def _struct_errors(written: msgspec.Struct, in_force: msgspec.Struct, path: str) -> Iterator[tuple[str, str]]:
    for field in struct_fields(type(written)):
        value = getattr(written, field.name)
        if value is not None:
            name = go_name(field.wire_name)
            place = f"{path}.{_embedding(type(written), field.name)}{name}"
            yield from _value_errors(value, getattr(in_force, field.name), field, place)
            if _is_number(value):
                text = _number_error(value, field, name) or _pair_error(value, in_force, field, name)
                if text:
                    yield place, text


def _value_errors(value: Any, in_force: Any, field: StructField, path: str) -> Iterator[tuple[str, str]]:
    """Errors inside ``value``, and of texts with a fixed set of values."""
    if isinstance(value, msgspec.Struct):
        yield from _struct_errors(value, in_force, path)
    elif isinstance(value, str) and field.schema.enum and value not in field.schema.enum:
        yield path, f"{go_name(field.wire_name)} must be one of [{' '.join(field.schema.enum)}]"
    elif isinstance(value, list | dict):
        items = enumerate(value) if isinstance(value, list) else value.items()
        for key, item in items:
            if isinstance(item, msgspec.Struct):
                yield from _struct_errors(item, item, f"{path}[{key}]")
            elif _is_number(item):
                name = f"{go_name(field.wire_name)}[{key}]"
                text = _number_error(item, field, name)
                if text:
                    yield f"{path}[{key}]", text


def _number_error(value: float, field: StructField, name: str) -> str:
    bounds = field.admission if _has_bounds(field.admission) else field.schema
    if field.wire_name in _ABOVE_ZERO:
        if value <= 0:
            return f"{name} must be greater than 0"
    elif bounds.minimum is not None and value < bounds.minimum:
        return f"{name} must be {bounds.minimum:,} or greater"
    if bounds.maximum is not None and value > bounds.maximum:
        return f"{name} must be {bounds.maximum:,} or less"
    return ""


def _has_bounds(bounds: Any) -> bool:
    return bounds.minimum is not None or bounds.maximum is not None


def _pair_error(value: float, in_force: msgspec.Struct, field: StructField, name: str) -> str:
    other_name = field.admission.less_than or field.admission.greater_than
    if not other_name:
        return ""
    other = getattr(in_force, other_name)
    if other is None and other_name in _DERIVED:
        return ""
    relation = "less" if field.admission.less_than else "greater"
    if other is not None and (value < other if relation == "less" else value > other):
        return ""
    wire_name = next(each.wire_name for each in struct_fields(type(in_force)) if each.name == other_name)
    return f"{name} must be {relation} than {go_name(wire_name)}"


def go_name(wire_name: str) -> str:
    """The name of a Go field, from that of its JSON."""
    first = _FIRST_WORD.match(wire_name)
    if first is None:
        return wire_name
    word = first[0]
    return _INITIALISMS.get(word, word.capitalize()) + wire_name[first.end() :]


def _embedding(struct: type[msgspec.Struct], field: str) -> str:
    for base in struct.__bases__:
        name = _EMBEDDED.get(base)
        if name is not None and any(each.name == field for each in struct_fields(base)):
            return f"{name}."
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
