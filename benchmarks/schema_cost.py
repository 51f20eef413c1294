"""What the schema of a custom resource costs, in this process without any API: NodeMetric with many pods.

``write`` is an update of the status with all that the schema does to it (unknown fields, pruning, defaults,
validation), with the decoding of the body beside it for scale. ``read`` is one object of a list: ``new`` ones were
written under the schema that is served, ``old`` ones are seen for the first time after a start. CPU microseconds, the
best of several turns.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from koordinator.api.manifests import custom_resource_definitions
from koordinator.cluster.custom_resources import resources_of
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.strategy.custom import CustomResourceStrategy
from koordinator.cluster.structural_schema.stored_form import StoredForm
from koordinator.cluster.verbs.target import encode, wire

Document = dict[str, Any]
_NAME: Final = "nodemetrics.slo.koordinator.sh"
_TURNS: Final = 7
_USAGE: Final = {"resources": {"cpu": "1500m", "memory": "3Gi"}}
_SINCE: Final = 10


def node_metric(pods: int) -> Document:
    """As a koordlet reports it."""
    aggregated = [
        {"duration": duration, "usage": dict.fromkeys(("avg", "p50", "p90", "p95", "p99"), _USAGE)}
        for duration in ("5m0s", "10m0s", "30m0s")
    ]
    pod = {"namespace": "default", "podUsage": _USAGE, "priority": "koord-batch", "qos": "BE"}
    node = {"nodeUsage": _USAGE, "systemUsage": _USAGE}
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": "node-1", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1},
        "spec": {"metricCollectPolicy": {"aggregateDurationSeconds": 300, "reportIntervalSeconds": 60}},
        "status": {
            "updateTime": "2026-01-01T00:00:00Z",
            "nodeMetric": {**node, "aggregatedNodeUsages": aggregated, "aggregatedSystemUsages": aggregated},
            "podsMetric": [{"name": f"pod-{number}", **pod} for number in range(pods)],
        },
    }


def costs(pods: int, repetitions: int) -> Document:
    definition = next(each for each in custom_resource_definitions() if each["metadata"]["name"] == _NAME)
    (resource,) = resources_of(definition, _SINCE)
    strategy = resource.strategy
    assert isinstance(strategy, CustomResourceStrategy)
    old = node_metric(pods)
    body = msgspec.json.encode(old)
    sent = msgspec.json.decode(body)

    def write() -> None:
        strategy.unknown_fields(sent)
        strategy.decode(sent)
        strategy.validate_status(sent, old)

    new, ancient = (Stored("k", encode(resource, old), revision) for revision in (_SINCE + 1, _SINCE))
    return {
        "pods": pods,
        "bytes": len(body),
        "decoding": _cost(lambda: msgspec.json.decode(body), repetitions),
        "write": _cost(write, repetitions),
        "read_new": _cost(lambda: wire(resource, new), repetitions),
        "read_old": _cost(lambda: StoredForm(strategy.schema, None, _SINCE)(ancient), repetitions),
    }


def _cost(work: Callable[[], object], repetitions: int) -> float:
    best = float("inf")
    for _ in range(_TURNS):
        start = time.process_time()
        for _ in range(repetitions):
            work()
        best = min(best, time.process_time() - start)
    return round(best / repetitions * 1e6, 1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schema_cost", description=__doc__)
    parser.add_argument("--pods", type=int, default=30)
    parser.add_argument("--repetitions", type=int, default=300)
    options = parser.parse_args(arguments)
    report = {"benchmark": "schema_cost", "unit": "CPU microseconds", **costs(options.pods, options.repetitions)}
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
