"""Parts of SLO ConfigMaps that tests of several webhooks ask about."""

from __future__ import annotations

from typing import Any

COLOCATION: dict[str, Any] = {
    "enable": True,
    "metricAggregateDurationSeconds": 60,
    "cpuReclaimThresholdPercent": 70,
    "memoryReclaimThresholdPercent": 80,
    "updateTimeThresholdSeconds": 300,
    "degradeTimeMinutes": 5,
    "resourceDiffThreshold": 0.1,
}
PLAIN = {
    "resource-threshold-config": '{"clusterStrategy":{"enable":true,"cpuSuppressThresholdPercent":60}}',
    "resource-qos-config": '{"clusterStrategy":{"enable":true,"beClass":{"cpuQOS":{"groupIdentity":0}}}}',
    "cpu-burst-config": '{"clusterStrategy":{"cfsQuotaBurstPeriodSeconds":60}}',
    "system-config": '{"clusterStrategy":{"minFreeKbytesFactor":150}}',
}
BROKEN = dict.fromkeys(PLAIN, "invalid_content")
