"""Strict decoding of scenarios, and the rules that types cannot express."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_origin

import msgspec

from koordinator.api.codec import DecodeError, convert
from koordinator.api.duration import GoDuration
from koordinator.api.names import label_key, label_value
from koordinator.base.durations import format_duration
from koordinator.base.errors import ConfigurationError

if TYPE_CHECKING:
    from koordinator.cluster.nodes.scenario import PlannedFault, Scenario
if TYPE_CHECKING:
    from koordinator.cluster.nodes.scenario import NodeGroup, Scenario


# What can be made to go wrong with what a simulated node reports.


FAULT_ANNOTATION: Final = "simulation.koordinator.sh/fault"
"""On a node: what goes wrong there from now on, whatever the scenario says; taken away, the scenario counts again."""


class Fault(StrEnum):
    NONE = "none"
    AGENT_MISSING = "agentMissing"
    """No report, and none from before: what there was is removed."""
    AGENT_STOPPED = "agentStopped"
    """No more reports; the last one stays."""
    USAGE_ABOVE_CAPACITY = "usageAboveCapacity"
    """The node is said to use 130 % of what it has."""
    NEGATIVE_READINGS = "negativeReadings"
    """The system is said to use less than nothing."""
    FROZEN_READINGS = "frozenReadings"
    """Reports go on, all with the readings of the first one."""
    CLOCK_AHEAD = "clockAhead"
    """Reports bear a time of an hour from now."""
    CLOCK_BEHIND = "clockBehind"
    """Reports bear a time of an hour ago."""
    NODE_STOPPED = "nodeStopped"
    """Nothing is heard of the node any more, neither of its kubelet nor of its agent, and its pods stay as they are."""


SILENT: Final = frozenset({Fault.AGENT_MISSING, Fault.AGENT_STOPPED, Fault.NODE_STOPPED})
"""Those with which nothing is reported."""
ALLOWED: Final = ", ".join(Fault)


# The rules for a scenario's faults.


def check_faults(scenario: Scenario, names: Collection[str]) -> None:
    """Raise ConfigurationError for the first rule that does not hold. ``names``: those of all nodes."""
    for index, group in enumerate(scenario.node_groups):
        text = group.annotations.get(FAULT_ANNOTATION)
        if text is not None and text not in set(Fault):
            raise ConfigurationError(f"nodeGroups[{index}].annotations.{FAULT_ANNOTATION}", text, f"one of {ALLOWED}")
    for index, planned in enumerate(scenario.faults):
        _check_fault(f"faults[{index}]", planned, names)


def _check_fault(at: str, planned: PlannedFault, names: Collection[str]) -> None:
    if planned.fault not in set(Fault):
        raise ConfigurationError(f"{at}.fault", planned.fault, f"one of {ALLOWED}")
    if not planned.nodes:
        raise ConfigurationError(f"{at}.nodes", planned.nodes, "at least one name or pattern, such as small-*")
    for index, pattern in enumerate(planned.nodes):
        if not any(fnmatchcase(name, pattern) for name in names):
            some = ", ".join(sorted(names)[:3])
            raise ConfigurationError(
                f"{at}.nodes[{index}]", pattern, f"a node of the scenario, which has {len(names)}, such as {some}"
            )
    if planned.after < GoDuration():
        raise ConfigurationError(f"{at}.after", format_duration(planned.after), "0 or more")
    if planned.lasts is not None and planned.lasts <= GoDuration():
        raise ConfigurationError(f"{at}.lasts", format_duration(planned.lasts), "more than 0, or left out")


T = TypeVar("T", bound=msgspec.Struct)

MAX_NODES: Final = 20_000
MAX_PODS_PER_NODE: Final = 250
"""As many as a node has addresses for, with a few to spare for pods that are just ending."""
_MAX_GPUS: Final = 64
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_PATH: Final = re.compile(r"(.*) - at `\$\.?(.*)`", re.DOTALL)


def decode_scenario(document: Any, expected: type[T], source: str) -> T:
    """Turn a YAML document into ``expected``; unknown fields and wrong types raise ConfigurationError."""
    if not isinstance(document, dict):
        raise ConfigurationError(source, document, "a YAML mapping with nodeGroups")
    _refuse_unknown(document, expected, "")
    try:
        return convert(document, expected)
    except DecodeError as error:
        raise _with_value(document, str(error), source) from error


def _refuse_unknown(document: Any, expected: Any, path: str) -> None:
    if get_origin(expected) is list and isinstance(document, list):
        for index, item in enumerate(document):
            _refuse_unknown(item, get_args(expected)[0], f"{path}[{index}]")
    if not (isinstance(expected, type) and issubclass(expected, msgspec.Struct) and isinstance(document, dict)):
        return
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(expected)}
    for name, value in document.items():
        at = f"{path}.{name}" if path else str(name)
        if name not in fields:
            raise ConfigurationError(at, value, f"there is no such field; allowed are {', '.join(sorted(fields))}")
        _refuse_unknown(value, fields[name], at)


def _with_value(document: Any, message: str, source: str) -> ConfigurationError:
    matched = _PATH.fullmatch(message)
    if matched is None:
        return ConfigurationError(source, "the document", message)
    why, path = matched.groups()
    value = document
    for step in re.findall(r"[^.\[\]]+", path):
        value = value[int(step)] if isinstance(value, list) and step.isdigit() else _member(value, step)
    return ConfigurationError(path, value, why[:1].lower() + why[1:])


def _member(value: Any, name: str) -> Any:
    return value.get(name, value) if isinstance(value, dict) else value


def check_scenario(scenario: Scenario) -> None:
    """Raise ConfigurationError for the first rule that does not hold."""
    if not _NAME.fullmatch(scenario.name):
        raise ConfigurationError("name", scenario.name, "lower-case letters, digits, '-' and '.'")
    if not scenario.zones:
        raise ConfigurationError("zones", scenario.zones, "at least one zone")
    for index, zone in enumerate(scenario.zones):
        _check_label_value(f"zones[{index}]", zone)
    _check_label_value("region", scenario.region)
    if not scenario.node_groups:
        raise ConfigurationError("nodeGroups", [], "at least one group of nodes")
    names: set[str] = set()
    for index, group in enumerate(scenario.node_groups):
        _check_group(f"nodeGroups[{index}]", group)
        if group.name in names:
            raise ConfigurationError(f"nodeGroups[{index}].name", group.name, "each group needs a name of its own")
        names.add(group.name)
    if not 0 < scenario.total_nodes <= MAX_NODES:
        raise ConfigurationError("nodeGroups", scenario.total_nodes, f"from 1 to {MAX_NODES} nodes in all")
    node_names = _check_names(scenario.node_groups)
    for path, value in _numbers("usage", scenario.usage):
        _check_number(path, value)
    for path, value in _numbers("timing", scenario.timing):
        _check_number(path, value)
    _check_timing(scenario)
    check_faults(scenario, node_names)


def _check_group(at: str, group: NodeGroup) -> None:
    if not _NAME.fullmatch(group.name):
        raise ConfigurationError(f"{at}.name", group.name, "lower-case letters, digits, '-' and '.'")
    if group.count < 0:
        raise ConfigurationError(f"{at}.count", group.count, "0 or more")
    if not 1 <= group.pods <= MAX_PODS_PER_NODE:
        raise ConfigurationError(f"{at}.pods", group.pods, f"from 1 to {MAX_PODS_PER_NODE}")
    amounts = {"cpu": group.cpu, "memory": group.memory}
    reserved = {"cpu": group.reserved.cpu, "memory": group.reserved.memory}
    for name, amount in amounts.items():
        if amount.nanos <= 0:
            raise ConfigurationError(f"{at}.{name}", str(amount), "more than 0")
        if not 0 <= reserved[name].nanos < amount.nanos:
            allowed = f"from 0 to less than the node's {name} ({amount})"
            raise ConfigurationError(f"{at}.reserved.{name}", str(reserved[name]), allowed)
    for name, amount in group.resources.items():
        if "/" not in name or label_key(name):
            raise ConfigurationError(f"{at}.resources", name, "names of extended resources, such as example.com/gpu")
        if amount.nanos < 0 or amount.value * 10**9 != amount.nanos:
            raise ConfigurationError(f"{at}.resources.{name}", str(amount), "a whole number, 0 or more")
    gpus = group.gpus
    if not 0 <= gpus.count <= _MAX_GPUS:
        raise ConfigurationError(f"{at}.gpus.count", gpus.count, f"from 0 to {_MAX_GPUS}")
    if gpus.memory.value <= 0:
        raise ConfigurationError(f"{at}.gpus.memory", str(gpus.memory), "more than 0")
    _check_metadata(at, group)


def _check_metadata(at: str, group: NodeGroup) -> None:
    for key, value in group.labels.items():
        if errors := label_key(key):
            raise ConfigurationError(f"{at}.labels", key, "; ".join(errors))
        _check_label_value(f"{at}.labels.{key}", value)
    for key in group.annotations:
        if errors := label_key(key):
            raise ConfigurationError(f"{at}.annotations", key, "; ".join(errors))
    for index, taint in enumerate(group.taints):
        if errors := label_key(taint.key):
            raise ConfigurationError(f"{at}.taints[{index}].key", taint.key, "; ".join(errors))
        if taint.effect not in _EFFECTS:
            raise ConfigurationError(f"{at}.taints[{index}].effect", taint.effect, f"one of {', '.join(_EFFECTS)}")
    try:
        example = group.name_pattern.format(group=group.name, index=0)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise _bad_pattern(at, group.name_pattern) from error
    if not _NAME.fullmatch(example) or "{index" not in group.name_pattern:
        raise _bad_pattern(at, group.name_pattern)


def _bad_pattern(at: str, pattern: str) -> ConfigurationError:
    allowed = "a node name with {index} and, if wanted, {group}, such as {group}-{index} or worker-{index:04d}"
    return ConfigurationError(f"{at}.namePattern", pattern, allowed)


def _check_names(groups: list[NodeGroup]) -> set[str]:
    """The names of all nodes."""
    seen: dict[str, int] = {}
    for position, group in enumerate(groups):
        for index in range(group.count):
            name = group.name_pattern.format(group=group.name, index=index)
            if seen.setdefault(name, position) != position:
                at = f"nodeGroups[{position}].namePattern"
                raise ConfigurationError(at, group.name_pattern, f"another group has a node {name!r} too")
    return set(seen)


def _check_label_value(at: str, value: str) -> None:
    if errors := label_value(value):
        raise ConfigurationError(at, value, "; ".join(errors))


def _numbers(path: str, struct: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        at = f"{path}.{field.encode_name}"
        if isinstance(value, msgspec.Struct):
            yield from _numbers(at, value)
        elif value is not None:
            yield at, value


def _check_number(at: str, value: Any) -> None:
    low, high = value if isinstance(value, tuple) else (value, value)
    zero = GoDuration() if isinstance(low, GoDuration) else 0
    if low < zero or high < low:
        shown = [_shown(low), _shown(high)] if isinstance(value, tuple) else _shown(value)
        allowed = "two values of 0 or more, the smaller one first" if isinstance(value, tuple) else "0 or more"
        raise ConfigurationError(at, shown, allowed)


def _check_timing(scenario: Scenario) -> None:
    timing = scenario.timing
    for name in ("lease_duration", "lease_interval", "heartbeat_interval", "sample_interval", "report_interval"):
        duration: GoDuration = getattr(timing, name)
        if duration.total_seconds() < 1:
            raise ConfigurationError(f"timing.{camel_case(name)}", _shown(duration), "at least 1s")
    if timing.lease_interval >= timing.lease_duration:
        allowed = f"less than leaseDuration ({_shown(timing.lease_duration)})"
        raise ConfigurationError("timing.leaseInterval", _shown(timing.lease_interval), allowed)
    if not 0 < timing.speed <= 100_000:
        raise ConfigurationError("timing.speed", timing.speed, "more than 0, at most 100000")
    if timing.start_hour is not None and timing.start_hour >= 24:
        raise ConfigurationError("timing.startHour", timing.start_hour, "an hour from 0 to less than 24")
    if scenario.usage.batch.node_limit_percent > 100:
        percent = scenario.usage.batch.node_limit_percent
        raise ConfigurationError("usage.batch.nodeLimitPercent", percent, "from 0 to 100")


def _shown(value: Any) -> Any:
    return format_duration(value) if isinstance(value, GoDuration) else value


def camel_case(name: str) -> str:
    """The camelCase name of a field."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
