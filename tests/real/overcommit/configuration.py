"""The SLO ConfigMap in the states that it goes through, and what nodes do meanwhile."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.real.overcommit.node_case import Document

NAME: Final = "slo-controller-config"


def _group(name: str, labels: dict[str, str] | None = None, **fields: Any) -> Document:
    selector = {"nodeSelector": {"matchLabels": labels}} if labels is not None else {}
    return {"name": name, **selector, **fields}


def _on(key: str, operator: str, *values: str) -> Document:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


_BLOCK: Final = {"name": "pool", "type": "volumegroup", "ioCfg": {"readIOPS": 100, "writeIOPS": 200}}
_COLOCATION: Final = {
    "enable": True,
    # Short, so that all that differs is written at once, however little it differs.
    "updateTimeThresholdSeconds": 2,
    "cpuReclaimThresholdPercent": 65,
    "memoryReclaimThresholdPercent": 65,
    "nodeConfigs": [
        _group("off", {"colocation": "off"}, enable=False),
        _group("tight", {"colocation": "tight"}, cpuReclaimThresholdPercent=80, memoryCalculatePolicy="request"),
        _group("second", {"second": "yes"}, cpuReclaimThresholdPercent=10),
        {
            "name": "loose",
            "nodeSelector": _on("colocation", "In", "loose", "free"),
            "memoryReclaimThresholdPercent": 99,
        },
        _group("invalid", {"colocation": "invalid"}, degradeTimeMinutes=0, cpuReclaimThresholdPercent=90),
        {"name": "bogus", "nodeSelector": _on("colocation", "Bogus", "bogus"), "cpuReclaimThresholdPercent": 90},
        _group("nobody", cpuReclaimThresholdPercent=5),
        _group("metrics", {"colocation": "metrics"}, metricReportIntervalSeconds=20, metricAggregateDurationSeconds=40),
    ],
}
_MODELS: Final = {
    "X": {
        "baseRatio": 1.1,
        "hyperThreadEnabledRatio": 1.337,
        "turboEnabledRatio": 1.65,
        "hyperThreadTurboEnabledRatio": 1.9,
    },
    "Y": {"baseRatio": 1.0, "hyperThreadTurboEnabledRatio": 7},
}
_KEYS: Final[dict[str, Document]] = {
    "colocation-config": _COLOCATION,
    "cpu-normalization-config": {
        "enable": False,
        "ratioModel": _MODELS,
        "nodeConfigs": [
            _group("on", {"ratio": "on"}, enable=True),
            _group("default", {"ratio": "default"}, enable=True, defaultRatio=1.11),
        ],
    },
    "resource-amplification-config": {
        "enable": False,
        "nodeConfigs": [
            _group("both", {"amplify": "both"}, enable=True, resourceAmplificationRatio={"cpu": 1.5, "memory": 1.25}),
            _group("memory", {"amplify": "memory"}, enable=True, resourceAmplificationRatio={"memory": 1.2}),
            _group("small", {"amplify": "small"}, enable=True, resourceAmplificationRatio={"cpu": 0.5}),
        ],
    },
    "resource-threshold-config": {
        "clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 60},
        "nodeStrategies": [
            _group("web", {"slo": "web"}, cpuSuppressThresholdPercent=40, memoryEvictLowerPercent=50),
            _group("same", {"slo": "same"}),
        ],
    },
    "resource-qos-config": {
        "clusterStrategy": {
            "policies": {"cpuPolicy": "groupIdentity"},
            "lsClass": {
                "cpuQOS": {"enable": True, "groupIdentity": 2},
                "memoryQOS": {"enable": True, "minLimitPercent": 3},
            },
            "beClass": {"blkioQOS": {"enable": True, "blocks": [_BLOCK]}},
        },
        "nodeStrategies": [
            _group("web", {"slo": "web"}, beClass={"memoryQOS": {"enable": True, "lowLimitPercent": 9}}),
            _group(
                "blocks",
                {"slo": "blocks"},
                beClass={"blkioQOS": {"blocks": [{"name": "disk", "type": "device", "ioCfg": {"readBPS": 7}}]}},
            ),
            _group(
                "hosts",
                {"slo": "hosts"},
                lsrClass={"networkQOS": {"enable": True, "ingressLimit": "10M", "egressLimit": 5}},
            ),
        ],
    },
    "cpu-burst-config": {
        "clusterStrategy": {"policy": "auto"},
        "nodeStrategies": [_group("web", {"slo": "web"}, cfsQuotaBurstPercent=200, sharePoolThresholdPercent=30)],
    },
    "system-config": {
        "clusterStrategy": {"minFreeKbytesFactor": 150, "totalNetworkBandwidth": "100M"},
        "nodeStrategies": [
            _group("system", {"slo": "system"}, watermarkScaleFactor=160),
            _group("network", {"slo": "network"}, totalNetworkBandwidth="9G"),
        ],
    },
    "host-application-config": {
        "applications": [
            {
                "name": "nginx",
                "priority": "koord-prod",
                "qos": "LS",
                "cgroupPath": {"base": "CgroupRoot", "relativePath": "nginx/"},
            }
        ],
        "nodeConfigs": [
            _group("hosts", {"slo": "hosts"}, applications=[{"name": "proxy", "priority": "koord-mid", "qos": "BE"}])
        ],
    },
}

GOOD: Final = {key: json.dumps(document) for key, document in _KEYS.items()}
BROKEN: Final = dict.fromkeys(_KEYS, '{"enable": true,')
INVALID: Final = {
    "colocation-config": json.dumps({**_COLOCATION, "degradeTimeMinutes": -1, "cpuReclaimThresholdPercent": 1}),
    "resource-threshold-config": json.dumps({"clusterStrategy": {"cpuSuppressThresholdPercent": "40"}}),
    "resource-qos-config": "",
    "cpu-burst-config": json.dumps({"clusterStrategy": {"policy": 1}}),
    "system-config": json.dumps({"clusterStrategy": {"totalNetworkBandwidth": "much"}}),
    "host-application-config": json.dumps({"applications": "nginx"}),
    "cpu-normalization-config": json.dumps({"enable": "true"}),
    "resource-amplification-config": json.dumps({"enable": True, "resourceAmplificationRatio": {"cpu": "2"}}),
}
OFF: Final = {
    "colocation-config": json.dumps(
        {
            "enable": False,
            "nodeConfigs": [_group("on", {"colocation": "tight"}, enable=True, metricReportIntervalSeconds=9)],
        }
    )
}
OTHER: Final = {
    **GOOD,
    "colocation-config": json.dumps(
        {**_COLOCATION, "cpuReclaimThresholdPercent": 90, "metricReportIntervalSeconds": 33}
    ),
    "cpu-burst-config": json.dumps({"clusterStrategy": {"policy": "cfsQuotaBurstOnly"}}),
}
