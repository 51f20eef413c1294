"""The script of the day: which pods are offered at which hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.kinds import Kind
from koordinator.api.labels import QOS_CLASS
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY

NODES: Final = 20
STEP_HOURS: Final = 0.5
"""From one moment at which the day is looked at, and pods are offered, to the next."""
DAY_SECONDS: Final = 36.0
"""Real seconds that the day takes where no program lags behind."""
PACE: Final = "koord-demo-pace"
"""The ConfigMap by which the simulated nodes are told how far their time may go on."""
FIRST_BATCH_HOUR: Final = 7
FIRST_BATCH_POD: Final = "batch-07-00"
NAMESPACE: Final = "default"
CPU_THRESHOLD_PERCENT: Final = 65
"""Of the load-aware filter, as in the local cluster's scheduler.yaml."""

SAFE_PERCENT: Final = 65
"""Of a node's CPU: what online and batch pods may use together."""
COLOCATION: Final = {
    "enable": True,
    "cpuReclaimThresholdPercent": SAFE_PERCENT,
    "memoryReclaimThresholdPercent": 65,
    # An hour takes a second and a half: what is reported and written every minute or five in a real cluster, is here
    # at every look.
    "metricReportIntervalSeconds": 1,
    "updateTimeThresholdSeconds": 1,
    "resourceDiffThreshold": 0.02,
    "extensions": {"abnormalNodes": {"raiseAfterSeconds": 1, "clearAfterSeconds": 1}},
}
"""The colocation strategy of the SLO ConfigMap."""

FAULTY: Final = "node-19"
"""The node whose agent reports nonsense for some hours."""
FAULTY_FROM_HOUR: Final = 9
FAULTY_TO_HOUR: Final = 12
"""It lasts longer if it has not been noticed by then."""

TOO_LARGE: Final = "quarterly-report"
"""The name of a pod that no node can take."""
_TOO_LARGE_HOUR: Final = 5

_SERVICES: Final = {"checkout": ("3", "6Gi", 28), "search": ("4", "8Gi", 18), "feed": ("2", "4Gi", 32)}
_SERVICE_HOURS: Final = range(3)
_BATCH_HOURS: Final = range(FIRST_BATCH_HOUR, 20)
_BATCH_PODS_AN_HOUR: Final = 34


@dataclass(frozen=True, slots=True)
class Arrival:
    """Pods that are created at one moment of the day."""

    hour: float
    what: str
    pods: tuple[dict[str, Any], ...]
    objects: tuple[tuple[Kind[Any], dict[str, Any]], ...] = ()
    """Created before the pods."""


def script() -> list[Arrival]:
    """The whole day, in order."""
    arrivals = [
        Arrival(float(hour), "online services", tuple(pod for name in _SERVICES for pod in _replicas(name, hour)))
        for hour in _SERVICE_HOURS
    ]
    arrivals.append(Arrival(float(_TOO_LARGE_HOUR), "a pod that no node can take", (_too_large(),)))
    arrivals += [
        Arrival(float(hour), "batch pods", tuple(_batch(hour, number) for number in range(_BATCH_PODS_AN_HOUR)))
        for hour in _BATCH_HOURS
    ]
    return arrivals


def _replicas(service: str, hour: int) -> list[dict[str, Any]]:
    cpu, memory, replicas = _SERVICES[service]
    amounts = {"cpu": cpu, "memory": memory}
    return [
        pod_of(f"{service}-{number:02d}", "koord-prod", "LS", amounts)
        for number in range(replicas)
        if number % len(_SERVICE_HOURS) == hour
    ]


def _batch(hour: int, number: int) -> dict[str, Any]:
    return batch_pod(f"batch-{hour:02d}-{number:02d}", 60 + 15 * (number % 5))


def batch_pod(name: str, minutes: int, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A pod of two CPUs for batch pods, which ends after so many minutes of the day."""
    amounts = {BATCH_CPU: "2000", BATCH_MEMORY: "2Gi"}
    annotations = {"simulation.koordinator.sh/run-time": f"{minutes}m"}
    return pod_of(name, "koord-batch", "BE", amounts, labels, annotations)


def _too_large() -> dict[str, Any]:
    return pod_of(TOO_LARGE, "koord-mid", "LS", {"cpu": "96", "memory": "16Gi"})


def pod_of(
    name: str,
    priority_class: str,
    qos: str,
    amounts: Mapping[str, str],
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A pod of one container, which requests ``amounts`` and is limited to them."""
    resources = {"requests": dict(amounts), "limits": dict(amounts)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {QOS_CLASS: qos, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "schedulerName": "koord-scheduler",
            "priorityClassName": priority_class,
            "restartPolicy": "Never" if qos == "BE" else "Always",
            "containers": [{"name": "main", "image": "demo", "resources": resources}],
        },
    }
