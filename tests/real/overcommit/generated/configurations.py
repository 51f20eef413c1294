"""SLO ConfigMaps by chance. Their values are such that the CRDs take them: what happens otherwise is a named case."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final, get_args, get_origin

import msgspec

from koordinator.api import slo_controller_config as keys
from koordinator.api.cpu_burst import CPUBurstStrategy
from koordinator.api.duration import GoDuration
from koordinator.api.quantity import Quantity
from koordinator.api.resource_qos import ResourceQoSStrategy
from koordinator.api.resource_threshold import ResourceThresholdStrategy
from koordinator.api.struct_fields import StructField, struct_fields
from koordinator.api.system_strategy import SystemStrategy
from tests.real.overcommit.generated.mistakes import Mistake, mistaken
from tests.real.overcommit.node_case import Document

POOLS: Final = ("a", "b", "c", "d", "e", "f")
TIERS: Final = ("gold", "silver", "")
MODELS: Final = ("X", "Y", "Z")
_POLICIES: Final = ("usage", "usage", "request", "maxUsageRequest", "average", "")
_RATIOS: Final = (1, 1.0, 1.1, 1.337, 1.65, 2.005, 3, 5)
_TEXTS: Final = ("auto", "none", "other", "")
_BROKEN: Final = tuple(
    Mistake(text)
    for text in ("{]", "[]", '"text"', "", "null", '{"enable":7}', '{"nodeConfigs":{}}', '{"nodeStrategies":7}')
)
_PERCENTS: Final = (0, 7, 29, 33, 50, 57, 65, 65, 73, 80, 90, 90, 99, 100, 100)

Strategy = type[msgspec.Struct]
_STRATEGIES: Final[dict[str, Strategy]] = {
    keys.RESOURCE_THRESHOLD: ResourceThresholdStrategy,
    keys.RESOURCE_QOS: ResourceQoSStrategy,
    keys.CPU_BURST: CPUBurstStrategy,
    keys.SYSTEM: SystemStrategy,
}


def configuration(chance: Random, is_first: bool) -> dict[str, str]:
    """The data of a ConfigMap. After the first one, keys may be missing or broken."""
    documents: dict[str, Document] = {
        keys.COLOCATION: _colocation(chance),
        keys.CPU_NORMALIZATION: _inline(chance, _normalization),
        keys.RESOURCE_AMPLIFICATION: _inline(chance, _amplification),
        keys.HOST_APPLICATION: _inline(chance, _applications),
    }
    for key, struct in _STRATEGIES.items():
        documents[key] = _grouped(chance, struct)
    data = {key: json.dumps(document) for key, document in documents.items()}
    if not is_first:
        for key in list(data):
            drawn = chance.random()
            if drawn < 0.04:
                data[key] = chance.choice(_BROKEN)
            elif drawn < 0.08:
                del data[key]
            elif drawn < 0.25:
                data[key] = mistaken(chance, documents[key])
    return data


def colocation_fields(chance: Random, share: float) -> Document:
    """Each field with the probability ``share``, within what both programs act upon."""
    fields: dict[str, Any] = {
        "enable": chance.random() < 0.9,
        "metricAggregateDurationSeconds": chance.choice([1, 60, 300]),
        "metricReportIntervalSeconds": chance.choice([1, 60, 90]),
        "metricAggregatePolicy": {"durations": chance.choice([["1m"], ["90s", "1h"], []])},
        "metricMemoryCollectPolicy": chance.choice(["usageWithPageCache", "usageWithoutPageCache"]),
        "cpuReclaimThresholdPercent": chance.choice([*_PERCENTS, 130]),
        "memoryReclaimThresholdPercent": chance.choice([*_PERCENTS, 130]),
        "cpuCalculatePolicy": chance.choice(_POLICIES),
        "memoryCalculatePolicy": chance.choice(_POLICIES),
        "degradeTimeMinutes": chance.choice([10, 30, 90]),
        "midReclaimMode": chance.choice(["static", "other", ""]),
        "midCPUThresholdPercent": chance.choice(_PERCENTS),
        "midMemoryThresholdPercent": chance.choice(_PERCENTS),
        "midUnallocatedPercent": chance.choice(_PERCENTS),
        "midStaticCPUReservedPercent": chance.choice(_PERCENTS),
        "midStaticMemoryReservedPercent": chance.choice(_PERCENTS),
        "batchCPUThresholdPercent": chance.choice([*_PERCENTS, 130]),
        "batchMemoryThresholdPercent": chance.choice([*_PERCENTS, 130]),
    }
    chosen = {name: value for name, value in fields.items() if chance.random() < share}
    if chance.random() < 0.1:
        chosen[chance.choice(list(fields))] = None
    return chosen


def _colocation(chance: Random) -> Document:
    groups = [
        _group(chance, "nodeSelector", colocation_fields(chance, 0.3)) for _ in range(chance.choice([0, 2, 4, 6]))
    ]
    # Short and small, so that all that differs is written at once, however little it differs.
    return {
        **colocation_fields(chance, 0.5),
        "enable": chance.random() < 0.95,
        "updateTimeThresholdSeconds": 1,
        "resourceDiffThreshold": 1e-15,
        "nodeConfigs": groups,
    }


def _normalization(chance: Random) -> Document:
    names = ("baseRatio", "hyperThreadEnabledRatio", "turboEnabledRatio", "hyperThreadTurboEnabledRatio")
    fields: Document = {"enable": chance.random() < 0.6}
    if chance.random() < 0.3:
        fields["defaultRatio"] = chance.choice([*_RATIOS, 0.9, 7])
    if chance.random() < 0.8:
        models = [model for model in MODELS if chance.random() < 0.7]
        fields["ratioModel"] = {
            model: {name: chance.choice(_RATIOS) for name in names if chance.random() < 0.8} for model in models
        }
    return fields


def _amplification(chance: Random) -> Document:
    names = [name for name in ("cpu", "memory", "example.com/other") if chance.random() < 0.5]
    return {
        "enable": chance.random() < 0.7,
        "resourceAmplificationRatio": {name: chance.choice([*_RATIOS, 0.5]) for name in names},
    }


def _applications(chance: Random) -> Document:
    made = []
    for number in range(chance.choice([0, 1, 2])):
        one: Document = {"name": f"host-{number}", "priority": "koord-prod", "qos": chance.choice(["LS", "BE", ""])}
        if chance.random() < 0.5:
            one["cgroupPath"] = {"base": "CgroupRoot", "relativePath": "nginx/"}
        if chance.random() < 0.2:
            one["strategy"] = {}
        made.append(one)
    return {"applications": made} if chance.random() < 0.9 else {}


def _inline(chance: Random, make: Any) -> Document:
    groups = [_group(chance, "nodeSelector", make(chance)) for _ in range(chance.choice([0, 1, 3]))]
    return {**make(chance), "nodeConfigs": groups}


def _grouped(chance: Random, struct: Strategy) -> Document:
    count = chance.choice([0, 1, 3, 5])
    document: Document = {
        "nodeStrategies": [_group(chance, "nodeSelector", _fields(chance, struct)) for _ in range(count)]
    }
    if chance.random() < 0.9:
        document["clusterStrategy"] = _fields(chance, struct)
    return document


def _group(chance: Random, member: str, fields: Document) -> Document:
    group = {"name": f"group-{chance.randrange(9)}", **fields}
    selector = _selector(chance)
    return group if selector is None else {**group, member: selector}


def _selector(chance: Random) -> Document | None:
    match chance.randrange(12):
        case 0:
            return None
        case 1:
            return {"matchExpressions": [{"key": "pool", "operator": "Bogus", "values": ["a"]}]}
        case 2 | 3 | 4:
            key, values = chance.choice([("pool", POOLS), ("tier", TIERS)])
            operator = chance.choice(["In", "NotIn", "Exists", "DoesNotExist"])
            expression: Document = {"key": key, "operator": operator}
            if operator in ("In", "NotIn"):
                expression["values"] = sorted({chance.choice(values), chance.choice(values)})
            return {"matchExpressions": [expression]}
        case 5:
            return {"matchLabels": {"pool": chance.choice(POOLS), "tier": chance.choice(TIERS)}}
        case 6:
            odd: list[Document] = [{}, {"matchLabels": {}}, {"matchLabels": {"pool": "-bad-"}}]
            return chance.choice(odd)
        case _:
            return {"matchLabels": {"pool": chance.choice(POOLS)}}


def _fields(chance: Random, struct: Strategy) -> Document:
    """Some of the fields of a struct, within what its CRD takes."""
    share = chance.choice([0.1, 0.3, 0.6])
    document = {}
    for field in struct_fields(struct):
        if chance.random() < share:
            document[field.wire_name] = None if chance.random() < 0.05 else _value(chance, field.type, field)
    return document


def _value(chance: Random, expected: Any, field: StructField) -> Any:
    if isinstance(expected, type) and issubclass(expected, msgspec.Struct):
        return _fields(chance, expected)
    if get_origin(expected) is list:
        return [_value(chance, get_args(expected)[0], field) for _ in range(chance.choice([0, 1, 2]))]
    if get_origin(expected) is dict:
        return {name: _value(chance, get_args(expected)[1], field) for name in ("one", "two") if chance.random() < 0.7}
    if expected is bool:
        return chance.random() < 0.5
    if expected is int:
        low = 0 if field.schema.minimum is None else field.schema.minimum
        high = low + 200 if field.schema.maximum is None else field.schema.maximum
        return chance.choice([low, high, chance.randint(low, high)])
    if expected is str:
        return chance.choice(field.schema.enum or _TEXTS)
    if expected is Quantity:
        return chance.choice(["0", "100M", "1Gi", "1.5G", 7])
    if expected is GoDuration:
        return "90s"
    return chance.choice([0, 7, "50", "10M", "1.5G"])
