"""Targets on the embedded API: selectors of every kind of workload, owners, and what cannot be used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.kinds import DEPLOYMENTS, REPLICA_SETS, Kind
from koordinator.api.meta import Object
from koordinator.base.clock import ManualClock
from koordinator.kube.errors import ApiStatusError
from koordinator.manager.recommender.observed_pods import ObservedPod
from koordinator.manager.recommender.targets import Problem, Target, TargetResolver
from tests.in_memory_api import InMemoryApi
from tests.manager.recommender.pods import Document, pod_document, recommendation

LABELS = {"app": "web"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
KINDS: dict[str, Kind[Any]] = {
    "Deployment": DEPLOYMENTS,
    "StatefulSet": Kind("apps", "v1", "statefulsets", "StatefulSet", Object),
    "DaemonSet": Kind("apps", "v1", "daemonsets", "DaemonSet", Object),
    "ReplicaSet": REPLICA_SETS,
    "Job": Kind("batch", "v1", "jobs", "Job", Object),
    "CronJob": Kind("batch", "v1", "cronjobs", "CronJob", Object),
    "ReplicationController": Kind("", "v1", "replicationcontrollers", "ReplicationController", Object),
}


class Bench:
    def __init__(self) -> None:
        self.api = InMemoryApi()
        self.clock = ManualClock()
        self.targets = TargetResolver(self.api.client(), self.clock)

    async def workload(self, kind: str, owner: Document | None = None, name: str = "web") -> str:
        """Create one. Returns its UID."""
        return await self.created(KINDS[kind], document(kind, owner, name))

    async def created(self, kind: Kind[Any], body: Document) -> str:
        self.api.put(kind, body)
        name = body["metadata"]["name"]
        return str(self.api.document(kind, name, "default")["metadata"]["uid"])

    async def resolve(self, **workload: str) -> Target | Problem:
        return await self.targets.resolve(recommendation(type="workload", workload=workload))


def document(kind: str, owner: Document | None, name: str) -> Document:
    spec: Document = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}
    if kind == "CronJob":
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}}
    elif kind == "ReplicationController":
        spec["selector"] = LABELS
    metadata: Document = {"name": name, "namespace": "default", "uid": f"uid-{kind}-{name}"}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"metadata": metadata, "spec": spec}


def owned(name: str, owner: Document | None) -> ObservedPod:
    body = pod_document(name)
    if owner is not None:
        body["metadata"]["ownerReferences"] = [owner]
    return convert(body, ObservedPod)


def reference(kind: str, uid: str, name: str = "web") -> Document:
    version = KINDS[kind].api_version
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}


def names(pods: Sequence[ObservedPod]) -> list[str]:
    return [pod.metadata.name for pod in pods]


@pytest.mark.parametrize("kind", KINDS)
def test_the_pods_of_a_workload_are_found_by_its_selector(kind: str) -> None:
    async def scenario() -> None:
        bench = Bench()
        uid = await bench.workload(kind)
        target = await bench.resolve(kind=kind, name="web")
        assert isinstance(target, Target), target
        assert target.selector.matches(LABELS)
        assert not target.selector.matches({"app": "other"})
        assert target.workload_uid == uid

    asyncio.run(scenario())


def test_pods_of_another_workload_with_the_same_labels_are_left_out() -> None:
    async def scenario() -> None:
        bench = Bench()
        uid = await bench.workload("Deployment")
        mine = await bench.workload("ReplicaSet", reference("Deployment", uid), "mine")
        other = await bench.workload("ReplicaSet", None, "other")
        target = await bench.resolve(kind="Deployment", name="web")
        assert isinstance(target, Target)
        pods = [
            owned("p", reference("ReplicaSet", mine, "mine")),
            owned("q", reference("ReplicaSet", other, "other")),
            owned("alone", None),
            owned("unknown", reference("ReplicaSet", "uid-of-a-deleted-one", "gone")),
        ]
        # Of an owner that is gone nobody can say whose it was, so that the labels decide.
        assert names(await bench.targets.matching(target, pods)) == ["p", "unknown"]

    asyncio.run(scenario())


def test_an_owner_is_read_once() -> None:
    async def scenario() -> None:
        bench = Bench()
        uid = await bench.workload("Deployment")
        mine = await bench.workload("ReplicaSet", reference("Deployment", uid), "mine")
        target = await bench.resolve(kind="Deployment", name="web")
        assert isinstance(target, Target)
        for _ in range(3):
            bench.targets.begin_pass(["uid-web"])
            await bench.targets.matching(target, [owned("p", reference("ReplicaSet", mine, "mine"))])
        assert [each.plural for each in bench.api.requests].count("replicasets") == 1

    asyncio.run(scenario())


def test_pods_that_are_finished_are_left_out() -> None:
    async def scenario() -> None:
        target = await Bench().targets.resolve(recommendation())
        assert isinstance(target, Target)
        finished = convert(pod_document("p", status={"phase": "Succeeded"}), ObservedPod)
        assert names(await Bench().targets.matching(target, [finished, owned("q", None)])) == ["q"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("target", "reason", "said"),
    [
        ({"type": "pods"}, "InvalidTarget", "spec.target.type: 'pods': workload and podSelector are allowed"),
        ({"type": "workload"}, "InvalidTarget", "spec.target.workload is missing"),
        ({"type": "podSelector"}, "InvalidTarget", "spec.target.podSelector is missing"),
        ({"type": "podSelector", "podSelector": {}}, "InvalidTarget", "would match every pod"),
        (
            {"type": "podSelector", "podSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
            "InvalidTarget",
            "'Near'",
        ),
        ({"type": "workload", "workload": {"kind": "Foo", "name": "web"}}, "InvalidTarget", "apiVersion is missing"),
        (
            {"type": "workload", "workload": {"kind": "Foo", "name": "web", "apiVersion": "apps/v1"}},
            "UnsupportedTarget",
            "the API server has no kind Foo in apps/v1",
        ),
        (
            {"type": "workload", "workload": {"kind": "Foo", "name": "web", "apiVersion": "example.com/v1"}},
            "UnsupportedTarget",
            "the API server does not have example.com/v1",
        ),
        (
            {"type": "workload", "workload": {"kind": "Foo", "name": "web", "apiVersion": "../v1"}},
            "UnsupportedTarget",
            "'..' in a reference cannot be part of a path",
        ),
        ({"type": "workload", "workload": {"kind": "Deployment", "name": "web"}}, "NoPodsMatched", "does not exist"),
    ],
)
def test_a_target_that_cannot_be_used_says_why(target: dict[str, Any], reason: str, said: str) -> None:
    found = asyncio.run(Bench().targets.resolve(recommendation(**target)))
    assert isinstance(found, Problem)
    assert found.reason == reason
    assert said in found.message


def test_a_failure_of_the_api_server_leaves_what_was_known() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.workload("Deployment")
        first = await bench.resolve(kind="Deployment", name="web")
        bench.api.fault = lambda request, done: ApiStatusError(500, "InternalError", "later")
        await bench.clock.advance(600)
        assert await bench.resolve(kind="Deployment", name="web") == first
        new = recommendation(type="workload", workload={"kind": "StatefulSet", "name": "other"})
        problem = await TargetResolver(bench.api.client(), bench.clock).resolve(new)
        assert isinstance(problem, Problem)
        assert not problem.is_unsupported
        assert "later" in problem.message

    asyncio.run(scenario())


def test_a_workload_that_is_created_anew_is_found_soon() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.workload("Deployment")
        before = await bench.resolve(kind="Deployment", name="web")
        bench.api.remove(KINDS["Deployment"], "web", "default")
        anew = document("Deployment", None, "web")
        anew["metadata"]["uid"] = "another"
        await bench.created(KINDS["Deployment"], anew)
        bench.targets.has_no_pods(recommendation())
        await bench.clock.advance(30)
        after = await bench.resolve(kind="Deployment", name="web")
        assert isinstance(before, Target)
        assert isinstance(after, Target)
        assert (before.workload_uid, after.workload_uid) == ("uid-Deployment-web", "another")

    asyncio.run(scenario())


def test_a_workload_that_appears_is_found_soon() -> None:
    async def scenario() -> None:
        bench = Bench()
        assert isinstance(await bench.resolve(kind="Deployment", name="web"), Problem)
        await bench.workload("Deployment")
        await bench.clock.advance(30)
        assert isinstance(await bench.resolve(kind="Deployment", name="web"), Target)

    asyncio.run(scenario())
