"""What is decided about pods is carried out on an API server: resizes, their records, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from koordinator.api.codec import convert
from koordinator.api.kinds import ELASTIC_QUOTAS, PODS, REPLICA_SETS, Kind
from koordinator.api.meta import LabelSelector, Object
from koordinator.api.modification import AUDIT_ACTION, decode_record
from koordinator.api.pod import Pod
from koordinator.api.recommendation import APPLIED, POLICY, Recommendation
from koordinator.base.clock import SteadyTime
from koordinator.kube.event_series import EVENTS_V1
from koordinator.kube.interface import PatchType
from koordinator.manager.features import make_features
from koordinator.manager.options import Options
from koordinator.manager.recommender.observed_pods import OBSERVED_PODS
from koordinator.manager.recommender.options import RecommenderOptions, ResizeOptions
from koordinator.manager.recommender.resizer import Resizer
from koordinator.manager.recommender.targets import Target
from koordinator.manager.recommender.tracked import Tracked, hash_of_target
from koordinator.model.label_selector import compile_selector
from tests.manager.controller_bench import ControllerBench, controller_bench
from tests.manager.recommender.pods import Document

WEB = {"app": "web"}
RESTARTED = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
STATUS: Document = {"ready": True, "restartCount": 3}
BUDGETS = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", Object)


class Bench:
    """A Deployment's pod, web-0, of one core, and a Recommendation of ``cpu`` for it."""

    def __init__(self, made: ControllerBench) -> None:
        self.made = made
        self.client = made.client
        self.resizer = Resizer(made.context)
        self.tracked = Tracked(Recommendation(), "", SteadyTime(made.clock))

    async def begin(self, cpu: str = "2", resize_policy: list[Document] | None = None) -> None:
        container: Document = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
        if resize_policy:
            container["resizePolicy"] = resize_policy
        await self.begin_with(container)
        await self.begin_another("web", cpu)

    async def begin_evicting(self) -> None:
        """A pod that cannot be resized, of a ReplicaSet that has one of two pods, and one that has no node."""
        template = {"metadata": {"labels": WEB}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
        spec = {"replicas": 2, "selector": {"matchLabels": WEB}, "template": template}
        made = await self.client.create(REPLICA_SETS, {"metadata": {"name": "web"}, "spec": spec}, "default")
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": made.metadata.uid}
        await self.begin_with({"name": "main", "image": "x"}, ownerReferences=[{**owner, "controller": True}])
        await self.client.create(PODS, {**template, "metadata": {"name": "web-1", "labels": WEB}}, "default")
        await self.count(1)
        await self.begin_another("web", "2", "InPlaceOrRecreate")
        self.tracked.target = Target(compile_selector(LabelSelector(match_labels=WEB)))

    async def count(self, ready: int) -> None:
        """As the ReplicaSet controller."""
        patch = {"status": {"replicas": 2, "readyReplicas": ready}}
        await self.client.patch(REPLICA_SETS, "web", patch, PatchType.MERGE, "default", subresource="status")

    async def begin_with(self, container: Document, **metadata: Any) -> None:
        spec = {"nodeName": "n1", "containers": [container]}
        body = {"metadata": {"name": "web-0", "labels": WEB, **metadata}, "spec": spec}
        await self.client.create(PODS, body, "default")
        await self.report(phase="Running", conditions=[{"type": "Ready", "status": "True"}])
        self.made.clock.set_wall(datetime.now(UTC) + timedelta(hours=1))

    async def begin_another(self, name: str, cpu: str, mode: str = "Auto") -> None:
        policy = json.dumps({"updateMode": mode})
        recommendation = {
            "metadata": {"name": name, "namespace": "default", "annotations": {POLICY: policy}},
            "status": {
                "updateTime": self.made.clock.now().isoformat(),
                "podStatus": {"containerStatuses": [{"containerName": "main", "resources": {"cpu": cpu}}]},
            },
        }
        found = convert(recommendation, Recommendation)
        self.tracked = Tracked(found, hash_of_target(found), SteadyTime(self.made.clock))
        self.tracked.update(found)

    async def report(self, **status: Any) -> None:
        """As the kubelet."""
        patch = {"status": status}
        await self.client.patch(PODS, "web-0", patch, PatchType.STRATEGIC, "default", subresource="status")

    async def act(self) -> None:
        self.tracked.pods = [await self.client.get(OBSERVED_PODS, "web-0", "default")]
        await self.resizer.act([self.tracked], {})

    async def pod(self) -> Pod:
        return await self.client.get(PODS, "web-0", "default")

    async def cpu(self) -> str:
        return str((await self.pod()).spec.containers[0].resources.requests["cpu"])

    async def record(self) -> Any:
        text = (await self.pod()).metadata.annotations.get(APPLIED)
        return None if text is None else json.loads(text)

    def results(self) -> dict[str, float]:
        name = "koord_manager_recommender_resizes_total"
        found = {each: self.made.metrics.registry.get_sample_value(name, {"result": each}) for each in RESULTS}
        return {each: count for each, count in found.items() if count}


RESULTS = ("resized", "undone", "refused", "evicted", "dry_run")


@asynccontextmanager
async def bench(*disabled: str, **resize: Any) -> AsyncIterator[Bench]:
    recommender = RecommenderOptions(resize=replace(ResizeOptions(), **resize))
    features = make_features()
    features.set(dict.fromkeys(disabled, False))
    options = Options(recommender=recommender, features=features)
    async with controller_bench(options) as made:
        found = Bench(made)
        async with made.working():
            yield found


def test_a_pod_is_resized_in_place_and_remembers_what_it_had() -> None:
    async def scenario() -> None:
        async with bench() as made:
            await made.begin()
            await made.act()
            record = await made.record()

            assert await made.cpu() == "2"
            assert record["containers"]["main"]["requests"]["cpu"] == {"before": "1", "after": "2"}
            assert (record["by"], record["recommendation"]) == ("resize", "web")
            assert made.results() == {"resized": 1}

    asyncio.run(scenario())


def test_a_resize_that_the_node_can_never_give_is_undone() -> None:
    async def scenario() -> None:
        async with bench() as made:
            await made.begin()
            await made.act()
            pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "too much"}
            await made.report(conditions=[pending])
            await made.act()
            record = await made.record()
            await made.act()

            assert await made.cpu() == "1"
            assert (record["undone"], record["undos"]) == ("the node can never give it that: too much", 1)
            assert made.results() == {"resized": 1, "undone": 1}
            assert "was undone" in made.tracked.waiting[""]

    asyncio.run(scenario())


def test_what_the_api_server_refuses_is_named_and_leaves_no_record() -> None:
    async def scenario() -> None:
        async with bench() as made:
            await made.begin()
            # Without resources in the status: a kubelet that does not resize.
            running = {"name": "main", "image": "x", "imageID": "", "state": {"running": {}}, **STATUS}
            await made.report(containerStatuses=[running])
            await made.act()
            refusal = made.tracked.waiting["web-0"]
            await made.act()

            assert "node without support for resize" in refusal
            assert await made.cpu() == "1"
            assert await made.record() is None
            assert made.results() == {"refused": 1}

    asyncio.run(scenario())


def test_a_resize_does_not_go_beyond_an_elastic_quota() -> None:
    async def scenario() -> None:
        async with bench() as made:
            await made.begin()
            quota = {
                "metadata": {"name": "default"},
                "spec": {"max": {"cpu": "1500m"}},
                "status": {"used": {"cpu": "1"}},
            }
            await made.client.create(ELASTIC_QUOTAS, quota, "default")
            await made.made.until_known(ELASTIC_QUOTAS, lambda found: found.metadata.name == "default")
            await made.act()

            assert made.tracked.waiting == {
                "web-0": "ElasticQuota default/default has no room: 1 of 1500m cpu are used"
            }
            assert await made.cpu() == "1"

    asyncio.run(scenario())


def test_a_restart_is_a_disruption_that_a_budget_has_to_allow() -> None:
    async def scenario() -> None:
        async with bench() as made:
            await made.begin(resize_policy=RESTARTED)
            await made.report(containerStatuses=[{"name": "main", "image": "x", "imageID": "", **STATUS}])
            spec = {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1}
            await made.client.create(BUDGETS, {"metadata": {"name": "web"}, "spec": spec}, "default")
            await made.act()
            refusal = made.tracked.waiting["web-0"]
            allowed = {"status": {"disruptionsAllowed": 1}}
            await made.client.patch(BUDGETS, "web", allowed, PatchType.MERGE, "default", subresource="status")
            await made.made.clock.advance(600)
            await made.act()

            assert refusal == "main would be restarted, and PodDisruptionBudget web allows no disruption"
            assert await made.cpu() == "2"
            assert (await made.record())["restarts"] == {"main": 4}

    asyncio.run(scenario())


def test_a_pod_is_evicted_when_all_others_of_its_workload_run() -> None:
    async def scenario() -> None:
        async with bench(evicted_after=timedelta(minutes=1)) as made:
            await made.begin_evicting()
            refusals = []
            for step in (made.client.delete(PODS, "web-1", "default"), made.count(2)):
                await made.act()
                refusals.append(made.tracked.waiting["web-0"])
                await step
                await made.made.clock.advance(9000)
            await made.act()

            assert refusals == ["pod web-1 of it has no node yet", "1 of 2 pods of ReplicaSet web are ready"]
            assert made.results() == {"refused": 2, "evicted": 1}

    asyncio.run(scenario())


def test_no_pod_is_evicted_by_a_manager_that_admits_none() -> None:
    async def scenario() -> None:
        async with bench("WebhookFramework", evicted_after=timedelta(minutes=1)) as made:
            await made.begin_evicting()
            await made.client.delete(PODS, "web-1", "default")
            await made.count(2)
            await made.act()

            assert made.results() == {}
            assert "its class of quality of service would change" in made.tracked.waiting["web-0"]

    asyncio.run(scenario())


def test_a_pod_of_two_recommendations_goes_by_the_first() -> None:
    async def scenario() -> None:
        async with bench() as made:
            await made.begin()
            first = made.tracked
            await made.begin_another("a-web", cpu="500m")
            made.tracked.pods = first.pods = [await made.client.get(OBSERVED_PODS, "web-0", "default")]
            await made.resizer.act([first, made.tracked], {})

            assert (await made.record())["recommendation"] == "a-web"
            assert await made.cpu() == "750m"
            assert made.results() == {"resized": 1}

    asyncio.run(scenario())


def test_a_dry_run_writes_nothing_and_says_what_it_would_do() -> None:
    async def scenario() -> None:
        async with bench(is_dry_run=True) as made:
            await made.begin()
            version = (await made.pod()).metadata.resource_version
            await made.act()

            assert (await made.pod()).metadata.resource_version == version
            assert made.tracked.waiting == {"web-0": "dry run: main: cpu 1 -> 2"}
            assert made.results() == {"dry_run": 1}

    asyncio.run(scenario())


def test_a_resize_is_an_event_that_the_audit_keeps() -> None:
    async def scenario() -> None:
        async with bench() as made:
            await made.begin()
            await made.act()
            event = await made.made.once(EVENTS_V1, lambda found: AUDIT_ACTION in found.metadata.labels, "default")
            record = decode_record(event.metadata)

            assert (record.action, record.actor, record.node) == ("resized", "Recommendation/web", "n1")
            assert record.cause.text == "Recommendation web: main: cpu 1 -> 2"

    asyncio.run(scenario())
