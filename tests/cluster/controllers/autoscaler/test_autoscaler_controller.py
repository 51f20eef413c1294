"""The HorizontalPodAutoscaler controller on an API server."""

from __future__ import annotations

from functools import partial
from typing import Any

from koordinator.api.document import Document
from koordinator.api.kinds import EVENTS, NODE_METRICS, NODES, PODS
from koordinator.base.clock import ManualClock
from koordinator.cluster.controllers.autoscaler.controller import HorizontalPodAutoscalerController
from koordinator.cluster.controllers.autoscaler.types import AUTOSCALERS
from koordinator.cluster.controllers.workloads import DEPLOYMENTS, REPLICATION_CONTROLLERS
from koordinator.kube.interface import PatchType
from tests.cluster.controllers.objects import LABELS, template
from tests.cluster.controllers.running_controllers import Cluster, asynchronous, running_controllers
from tests.in_memory_api import InMemoryApi
from tests.waiting import wait_for


def _autoscaler(percent: int, kind: str = "Deployment", version: str = "apps/v1", **spec: Any) -> Document:
    target = {"type": "Utilization", "averageUtilization": percent}
    metric = {"type": "Resource", "resource": {"name": "memory", "target": target}}
    reference = {"apiVersion": version, "kind": kind, "name": "web"}
    return {"scaleTargetRef": reference, "maxReplicas": 8, "metrics": [metric], **spec}


async def _pods(cluster: Cluster, count: int, used: str) -> None:
    """Pods that request 100Mi and use ``used``, each, as their node reports it."""
    requests = {"resources": {"requests": {"memory": "100Mi"}}}
    for number in range(count):
        body = template()
        spec = {"nodeName": "n", "containers": [{**body["spec"]["containers"][0], **requests}]}
        made = {"metadata": {"name": f"p{number}", "labels": LABELS}, "spec": spec}
        await cluster.client.create(PODS, made, "default")
        running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await cluster.client.patch(PODS, f"p{number}", running, PatchType.MERGE, "default", subresource="status")
    usage = [
        {"namespace": "default", "name": f"p{number}", "podUsage": {"resources": {"cpu": "1", "memory": used}}}
        for number in range(count)
    ]
    now = cluster.api.clock.now().isoformat()
    cluster.api.put(NODES, {"metadata": {"name": "n"}})
    cluster.api.put(NODE_METRICS, {"metadata": {"name": "n"}, "status": {"updateTime": now, "podsMetric": usage}})


def _reasons(found: Document) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in found["status"].get("conditions") or ()}


@asynchronous
async def test_a_deployment_follows_the_usage_of_its_pods() -> None:
    clock = ManualClock()
    async with running_controllers(HorizontalPodAutoscalerController, api=InMemoryApi(clock)) as cluster:
        spec = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template()}
        await cluster.create(DEPLOYMENTS, "web", spec)
        await _pods(cluster, 2, "90Mi")
        await cluster.create(AUTOSCALERS, "web", _autoscaler(45))
        await cluster.until(DEPLOYMENTS, "web", lambda each: each["spec"]["replicas"] == 4)
        found = await cluster.until(AUTOSCALERS, "web", lambda each: each["status"].get("desiredReplicas") == 4)
        assert found["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"] == 90
        assert _reasons(found)["AbleToScale"] == "SucceededRescale"
        event = await cluster.event("SuccessfulRescale")
        assert event["message"] == (
            "New size: 4; reason: memory resource utilization (percentage of request) above target"
        )
        await cluster.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 9}})
        await clock.advance(15)
        await cluster.until(DEPLOYMENTS, "web", lambda each: each["spec"]["replicas"] == 8)


@asynchronous
async def test_any_kind_with_a_scale_is_scaled() -> None:
    async with running_controllers(HorizontalPodAutoscalerController) as cluster:
        await cluster.create(REPLICATION_CONTROLLERS, "web", {"replicas": 2, "template": template()})
        spec = _autoscaler(50, "ReplicationController", "v1", minReplicas=3)
        await cluster.create(AUTOSCALERS, "web", spec)
        await cluster.until(REPLICATION_CONTROLLERS, "web", lambda each: each["spec"]["replicas"] == 3)


@asynchronous
async def test_what_cannot_be_scaled_is_named_and_looked_at_again() -> None:
    clock = ManualClock()
    async with running_controllers(HorizontalPodAutoscalerController, api=InMemoryApi(clock)) as cluster:
        await cluster.create(AUTOSCALERS, "gone", _autoscaler(50))
        await cluster.create(AUTOSCALERS, "odd", _autoscaler(50, "Foo", "example.com/v1"))
        texts = {"gone": 'deployments.apps "web" not found', "odd": 'no matches for kind "Foo" in group "example.com"'}
        for name, text in texts.items():
            found = await cluster.until(AUTOSCALERS, name, lambda each: bool(_reasons(each)))
            (condition,) = found["status"]["conditions"]
            assert (condition["type"], condition["reason"]) == ("AbleToScale", "FailedGetScale")
            assert condition["message"].endswith(f"current scale: {text}")
        await cluster.create(
            DEPLOYMENTS, "web", {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": template()}
        )
        await clock.advance(15)
        await cluster.until(AUTOSCALERS, "gone", lambda each: _reasons(each).get("AbleToScale") == "SucceededGetScale")


@asynchronous
async def test_two_autoscalers_of_the_same_pods_do_nothing() -> None:
    clock = ManualClock()
    async with running_controllers(HorizontalPodAutoscalerController, api=InMemoryApi(clock)) as cluster:
        spec = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template()}
        await cluster.create(DEPLOYMENTS, "web", spec)
        await _pods(cluster, 2, "1Mi")
        for name in ("one", "other"):
            await cluster.create(AUTOSCALERS, name, _autoscaler(50))
        await cluster.until(AUTOSCALERS, "other", lambda each: bool(_reasons(each)))
        await clock.advance(15)
        for name in ("one", "other"):
            await cluster.until(
                AUTOSCALERS, name, lambda each: _reasons(each).get("ScalingActive") == "AmbiguousSelector"
            )


@asynchronous
async def test_the_same_failure_is_one_event() -> None:
    clock = ManualClock()
    async with running_controllers(HorizontalPodAutoscalerController, api=InMemoryApi(clock)) as cluster:
        await cluster.create(AUTOSCALERS, "web", _autoscaler(50))
        await cluster.event("FailedGetScale")
        for looks in range(2, 5):
            await clock.advance(15)
            await wait_for(partial(_has_looked, cluster, looks))
        assert len(cluster.api.all(EVENTS)) == 1


def _has_looked(cluster: Cluster, times: int) -> bool:
    """The controller has read the scale of its target so often."""
    return sum(each.subresource == "scale" for each in cluster.api.requests) >= times
