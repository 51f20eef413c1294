"""Two versions of one kind: what one of them cannot say is kept, whoever writes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from koordinator.api.document import Document, copied
from koordinator.cluster.errors import ApiError
from koordinator.cluster.strategy.autoscaler import to_version_1, to_version_2
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.options import ListOptions
from koordinator.cluster.verbs.read import get
from koordinator.cluster.verbs.target import Target, decode
from koordinator.cluster.verbs.update import update
from tests.cluster.embedded import Verbs

REFERENCE = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}


def _cpu(percent: int) -> Document:
    return {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}},
    }


def _target(verbs: Verbs, version: str, name: str = "") -> Target:
    resource = verbs.environment.registry.served.get(("autoscaling", version, "horizontalpodautoscalers"))
    assert resource is not None
    return Target(resource, "default", name)


def _create(verbs: Verbs, version: str, **spec: Any) -> None:
    obj = {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": REFERENCE, "maxReplicas": 3, **spec}}
    asyncio.run(create(verbs.environment, _target(verbs, version), obj))


def _read(verbs: Verbs, version: str) -> Document:
    target = _target(verbs, version, "h")
    return decode(target.resource, get(verbs.environment, target, ListOptions()))


def test_version_1_is_one_metric_of_version_2() -> None:
    verbs = Verbs()
    _create(verbs, "v1", targetCPUUtilizationPercentage=50)
    assert _read(verbs, "v2")["spec"]["metrics"] == [_cpu(50)]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_who_names_no_metric_gets_cpu(version: str) -> None:
    verbs = Verbs()
    _create(verbs, version)
    assert _read(verbs, "v1")["spec"]["targetCPUUtilizationPercentage"] == 80


def test_a_write_of_version_1_keeps_what_it_cannot_say() -> None:
    verbs = Verbs()
    _create(verbs, "v2", metrics=[MEMORY, _cpu(60)], behavior={"scaleDown": {"stabilizationWindowSeconds": 9}})
    before, older = _read(verbs, "v2"), _read(verbs, "v1")
    older["spec"]["maxReplicas"] = 7
    asyncio.run(update(verbs.environment, _target(verbs, "v1", "h"), older))
    after = _read(verbs, "v2")
    assert after["spec"] == {**before["spec"], "maxReplicas": 7}


def test_what_was_stored_as_version_1_is_read() -> None:
    verbs = Verbs()
    target = _target(verbs, "v2", "h")
    older = {"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}, "status": {}}
    asyncio.run(verbs.storage.create(target.key, msgspec.json.encode(older)))
    assert _read(verbs, "v2")["spec"] == {"maxReplicas": 3, "metrics": [_cpu(50)]}
    assert _read(verbs, "v1")["spec"] == {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}


def test_there_and_back_nothing_changes() -> None:
    current = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 12}}}
    obj = {
        "apiVersion": "autoscaling/v2",
        "metadata": {"annotations": {"a": "b"}},
        "spec": {"metrics": [MEMORY, _cpu(60)]},
        "status": {"currentMetrics": [current], "conditions": [{"type": "AbleToScale", "status": "True"}]},
    }
    assert to_version_2(to_version_1(copied(obj))) == obj


def test_an_annotation_that_nobody_can_read_stays() -> None:
    annotations = {"autoscaling.alpha.kubernetes.io/metrics": "{"}
    assert to_version_2({"metadata": {"annotations": dict(annotations)}})["metadata"]["annotations"] == annotations


@pytest.mark.parametrize(("most", "least"), [(0, 1), (2, 3)])
def test_more_than_the_most_cannot_be_the_least(most: int, least: int) -> None:
    with pytest.raises(ApiError, match=r"spec\.maxReplicas"):
        _create(Verbs(), "v2", maxReplicas=most, minReplicas=least)


@pytest.mark.parametrize(
    ("metrics", "current", "shown"),
    [
        ([_cpu(80)], [], "cpu: <unknown>/80%"),
        (
            [_cpu(80)],
            [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 12}}}],
            "cpu: 12%/80%",
        ),
        ([_cpu(80), MEMORY], [], "cpu: <unknown>/80%, memory: <unknown>/1Gi"),
        ([_cpu(80), MEMORY, MEMORY], [], "cpu: <unknown>/80%, memory: <unknown>/1Gi + 1 more..."),
    ],
)
def test_targets_are_shown(metrics: list[Document], current: list[Document], shown: str) -> None:
    verbs = Verbs()
    strategy = _target(verbs, "v2").resource.strategy
    obj = {
        "apiVersion": "autoscaling/v2",
        "metadata": {"name": "h"},
        "spec": {"scaleTargetRef": REFERENCE, "minReplicas": 1, "maxReplicas": 3, "metrics": metrics},
        "status": {"currentMetrics": current},
    }
    assert strategy.row(obj, verbs.clock.now())[1:6] == ["Deployment/d", shown, "1", 3, 0]
