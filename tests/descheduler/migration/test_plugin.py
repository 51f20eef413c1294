"""MigrationController as a plugin: which pods it refuses, and the jobs that it creates."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.kinds import (
    ADVANCED_STATEFUL_SETS,
    CLONE_SETS,
    DEPLOYMENTS,
    POD_MIGRATION_JOBS,
    PODS,
    PRIORITY_CLASSES,
    Kind,
)
from koordinator.api.pod import Pod
from koordinator.descheduler.framework import EvictionResult, Snapshot
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.kube.errors import ApiStatusError
from tests.descheduler.migration import scene
from tests.descheduler.migration.simulated_cluster import SimulatedCluster


class Bench:
    """Two pods of one Deployment."""

    def __init__(self, replicas: int = 4, **args: Any) -> None:
        self.cluster = SimulatedCluster()
        scene.deployment(self.cluster, replicas)
        for name in ("web-a", "web-b"):
            scene.pod(self.cluster, name)
        self.plugin = self.cluster.start(convert(args, MigrationControllerArgs))

    def change(self, name: str = "web-a", *, metadata: dict[str, Any] | None = None, **spec: Any) -> None:
        document = scene.pod(self.cluster, name, **(metadata or {}))
        document["spec"].update(spec)
        self.cluster.put(PODS, document)
        self.cluster.deliver()

    def pod(self, name: str = "web-a") -> Pod:
        return convert(self.cluster.documents(PODS)[f"default/{name}"], Pod)

    def refusals(self, name: str = "web-a") -> str:
        self.cluster.deliver()
        return "; ".join(self.plugin.filter(self.pod(name)))

    def evict(self, name: str = "web-a") -> EvictionResult:
        return asyncio.run(self.plugin.evict(self.pod(name), "LowNodeLoad", "node is overutilized", None))

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return list(self.cluster.documents(POD_MIGRATION_JOBS).values())


def test_the_job_is_the_original_s() -> None:
    bench = Bench(defaultDeleteOptions={"gracePeriodSeconds": 5})
    assert bench.evict().evicted
    (job,) = bench.jobs
    annotations = job["metadata"]["annotations"]
    assert annotations["koordinator.sh/evict-reason"] == "node is overutilized"
    assert annotations["koordinator.sh/evict-trigger"] == "LowNodeLoad"
    assert annotations["koordinator.sh/job-created-by"]
    pod = bench.pod().metadata
    assert job["spec"] == {
        "podRef": {"namespace": "default", "name": "web-a", "uid": pod.uid},
        "mode": "ReservationFirst",
        "ttl": "5m0s",
        "deleteOptions": {"gracePeriodSeconds": 5},
    }


def test_a_job_counts_before_any_informer_has_seen_it() -> None:
    bench = Bench(replicas=2)
    assert bench.evict("web-a").evicted
    second = bench.evict("web-b")
    assert not second.evicted
    assert "maxMigratingPerWorkload" in second.message
    assert "filterExistingPodMigrationJob" in bench.evict("web-a").message
    assert len(bench.jobs) == 1


def test_a_dry_run_creates_nothing() -> None:
    bench = Bench(dryRun=True)
    assert bench.evict().evicted
    assert not bench.jobs


def test_a_failing_server_is_a_result() -> None:
    bench = Bench()
    bench.cluster.put(POD_MIGRATION_JOBS, {"metadata": {"name": "x"}, "spec": {}})
    bench.cluster.fault = lambda verb, path, done: ApiStatusError(503, "ServiceUnavailable", "etcd is away")
    result = bench.evict()
    assert not result.evicted
    assert "etcd is away" in result.message


@pytest.mark.parametrize(
    ("args", "changed", "refusal"),
    [
        ({}, {"schedulerName": "default-scheduler"}, "reservationFilter"),
        ({"defaultJobMode": "EvictDirectly"}, {"schedulerName": "default-scheduler"}, ""),
        ({}, {"priority": 2_000_000_000}, "pod has system critical priority"),
        ({"evictSystemCriticalPods": True}, {"priority": 2_000_000_000}, ""),
        ({"priorityThreshold": {"value": 100}}, {"priority": 100}, "pod has higher priority than specified"),
        ({"priorityThreshold": {"name": "high"}}, {"priority": 500}, "pod has higher priority than specified"),
        ({"priorityThreshold": {"name": "high"}}, {"priority": 499}, ""),
        (
            {"priorityThreshold": {"value": 100}, "skipEvictionGates": ["PriorityThreshold"]},
            {"priority": 100},
            "",
        ),
        ({}, {"volumes": [{"name": "v", "emptyDir": {}}]}, "pod has local storage"),
        ({"skipEvictionGates": ["LocalStorage"]}, {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}, ""),
        (
            {"ignorePvcPods": True},
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            "pod has a PVC",
        ),
        ({"labelSelector": {"matchLabels": {"app": "other"}}}, {}, "pod labels do not match"),
        ({"namespaces": {"exclude": ["default"]}}, {}, "excludedNamespaces"),
        ({"namespaces": {"include": ["other"]}}, {}, "includedNamespaces"),
        ({"namespaces": {"include": ["other"]}, "skipEvictionGates": ["Namespaces"]}, {}, ""),
    ],
)
def test_specs_that_are_refused(args: dict[str, Any], changed: dict[str, Any], refusal: str) -> None:
    bench = Bench(**args)
    bench.cluster.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 500})
    bench.change(**changed)
    refusals = bench.refusals()
    assert refusal in refusals if refusal else refusals == ""


@pytest.mark.parametrize(
    ("metadata", "refusal"),
    [
        ({"annotations": {"scheduling.koordinator.sh/eviction-cost": "2147483647"}}, "podWithMaxEvictionCost"),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, "pod is a mirror pod"),
        ({"annotations": {"kubernetes.io/config.source": "file"}}, "pod is a static pod"),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "pod is terminating"),
        ({"ownerReferences": []}, "pod does not have any ownerRefs"),
        ({"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "d"}]}, "pod is a DaemonSet pod"),
        (
            {"ownerReferences": [], "annotations": {"descheduler.alpha.kubernetes.io/evict": "true"}},
            "",
        ),
    ],
)
def test_pods_that_are_refused(metadata: dict[str, Any], refusal: str) -> None:
    bench = Bench()
    bench.change(metadata=metadata)
    refusals = bench.refusals()
    assert refusal in refusals if refusal else refusals == ""


def test_a_failed_bare_pod_may_be_evicted_where_that_is_configured() -> None:
    bench = Bench(evictFailedBarePods=True)
    bench.change(metadata={"ownerReferences": []})
    assert "is not in failed phase" in bench.refusals()
    bench.cluster.change(PODS, "default/web-a", phase="Failed")
    assert bench.refusals() == ""


@pytest.mark.parametrize(
    ("replicas", "args", "refused"),
    [
        (1, {}, True),
        (2, {}, False),
        (2, {"maxUnavailablePerWorkload": 2}, True),
        (2, {"maxUnavailablePerWorkload": 2, "skipCheckExpectedReplicas": True}, False),
        (0, {}, True),
    ],
)
def test_how_many_replicas_are_expected(replicas: int, args: dict[str, Any], refused: bool) -> None:
    assert ("expectedReplicas" in Bench(replicas, **args).refusals()) is refused


def test_a_workload_of_another_kind_is_queried_for_its_scale() -> None:
    bench = Bench()
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "c", "uid": "c", "controller": True}
    bench.change(metadata={"ownerReferences": [owner]})
    assert "has not been read yet" in bench.refusals()
    listed = [{"name": "rollouts", "kind": "Rollout"}, {"name": "rollouts/scale", "kind": "Scale"}]
    root = "/apis/argoproj.io/v1alpha1"
    bench.cluster.scales[root] = {"resources": listed}
    scale = {"metadata": {"uid": "c"}, "spec": {"replicas": 3}}
    bench.cluster.scales[f"{root}/namespaces/default/rollouts/c/scale"] = scale
    snapshot = Snapshot([], {"node-1": [bench.pod()]}, bench.cluster.clock.now())
    asyncio.run(bench.plugin.prepare(snapshot))
    assert bench.refusals() == ""
    scale["spec"] = {"replicas": 1}
    scene.pod(bench.cluster, "web-c", ownerReferences=[owner])
    bench.cluster.deliver()
    asyncio.run(bench.plugin.prepare(snapshot))
    assert "expectedReplicas" in bench.refusals(), "a pod of the workload has come"


def _rollouts(count: int) -> tuple[Bench, Snapshot]:
    """Pods of as many workloads of a kind without an informer."""
    bench = Bench()
    root = "/apis/argoproj.io/v1alpha1"
    bench.cluster.scales[root] = {"resources": [{"name": "rollouts", "kind": "Rollout"}]}
    for number in range(count):
        name = f"r{number}"
        owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": name, "uid": name, "controller": True}
        scene.pod(bench.cluster, name, ownerReferences=[owner])
        scale = {"metadata": {"uid": name}, "spec": {"replicas": 3}}
        bench.cluster.scales[f"{root}/namespaces/default/rollouts/{name}/scale"] = scale
    bench.cluster.deliver()
    pods = [bench.pod(f"r{number}") for number in range(count)]
    return bench, Snapshot([], {"node-1": pods}, bench.cluster.clock.now())


def _scales_read(bench: Bench) -> int:
    return sum(path.endswith("/scale") for path in bench.cluster.reads)


def test_scales_are_not_read_anew_in_each_cycle() -> None:
    bench, snapshot = _rollouts(20)
    for _ in range(4):
        asyncio.run(bench.plugin.prepare(snapshot))
        asyncio.run(bench.cluster.clock.advance(120))
    assert _scales_read(bench) == 20
    bench.cluster.remove(PODS, "default/r7")
    bench.cluster.deliver()
    asyncio.run(bench.plugin.prepare(snapshot))
    assert _scales_read(bench) == 21, "that of the workload that has lost a pod"
    asyncio.run(bench.cluster.clock.advance(600))
    asyncio.run(bench.plugin.prepare(snapshot))
    assert _scales_read(bench) == 41, "and all after ten minutes"


def test_several_scales_are_read_at_once() -> None:
    bench, snapshot = _rollouts(30)
    in_flight, most = 0, 0
    read = bench.plugin._workloads._read

    async def watched(*args: Any) -> Any:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0)
        found = await read(*args)
        in_flight -= 1
        return found

    bench.plugin._workloads._read = watched  # type: ignore[method-assign, assignment]
    asyncio.run(bench.plugin.prepare(snapshot))
    assert (most, _scales_read(bench)) == (8, 30)


def test_an_owner_reference_leads_to_no_path_but_its_own() -> None:
    bench = Bench()
    owner = {"apiVersion": "a/v1?x=#", "kind": "Rollout", "name": "../c?", "uid": "c", "controller": True}
    bench.change(metadata={"ownerReferences": [owner]})
    root = "/apis/a/v1%3Fx%3D%23"
    bench.cluster.scales[root] = {"resources": [{"name": "rollouts", "kind": "Rollout"}]}
    scale = {"metadata": {"uid": "c"}, "spec": {"replicas": 3}}
    bench.cluster.scales[f"{root}/namespaces/default/rollouts/..%2Fc%3F/scale"] = scale
    snapshot = Snapshot([], {"node-1": [bench.pod()]}, bench.cluster.clock.now())
    asyncio.run(bench.plugin.prepare(snapshot))
    assert bench.refusals() == ""


@pytest.mark.parametrize(
    ("version", "name"),
    [("..", "c"), (".", "c"), ("../v1", "c"), ("a/..", "c"), ("/v1", "c"), ("", "c"), ("a/v1", ".."), ("a/v1", "")],
)
def test_an_owner_reference_of_dots_leads_nowhere(version: str, name: str) -> None:
    bench = Bench()
    owner = {"apiVersion": version, "kind": "Rollout", "name": name, "uid": "c", "controller": True}
    bench.change(metadata={"ownerReferences": [owner]})
    bench.cluster.scales["/apis/a/v1"] = {"resources": [{"name": "rollouts", "kind": "Rollout"}]}
    asyncio.run(bench.plugin.prepare(Snapshot([], {"node-1": [bench.pod()]}, bench.cluster.clock.now())))
    assert [path for path in bench.cluster.reads if path != "/apis/a/v1"] == []
    assert "in a reference cannot be part of a path" in bench.refusals()


@pytest.mark.parametrize("kind", [CLONE_SETS, ADVANCED_STATEFUL_SETS])
def test_the_workloads_of_open_kruise_are_known(kind: Kind[Any]) -> None:
    bench = Bench()
    owner = {"apiVersion": kind.api_version, "kind": kind.name, "name": "c", "uid": "c", "controller": True}
    bench.change(metadata={"ownerReferences": [owner]})
    assert "expectedReplicas" in bench.refusals()
    metadata = {"namespace": "default", "name": "c", "uid": "c"}
    bench.cluster.put(kind, {"metadata": metadata, "spec": {"replicas": 3}})
    assert bench.refusals() == ""


def test_a_workload_whose_scale_cannot_be_read_is_left_alone() -> None:
    bench = Bench()
    owner = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "w", "controller": True}
    bench.change(metadata={"ownerReferences": [owner]})
    bench.cluster.scales["/apis/example.com/v1"] = {"resources": []}
    asyncio.run(bench.plugin.prepare(Snapshot([], {"node-1": [bench.pod()]}, bench.cluster.clock.now())))
    assert "has no kind Widget in example.com/v1" in bench.refusals()


def test_a_deployment_of_another_uid_is_not_the_workload() -> None:
    bench = Bench()
    spec = {"replicas": 4}
    bench.cluster.put(DEPLOYMENTS, {"metadata": {"namespace": "default", "name": "web", "uid": "new"}, "spec": spec})
    assert "expectedReplicas" in bench.refusals()


@pytest.mark.parametrize(
    ("listed", "scale"),
    [
        (None, {"metadata": {"uid": "c"}, "spec": {"replicas": 3}}),
        ({"resources": "many"}, {"metadata": {"uid": "c"}, "spec": {"replicas": 3}}),
        ({"resources": [{"kind": "Rollout"}]}, {"metadata": {"uid": "c"}, "spec": {"replicas": 3}}),
        ({"resources": [{"name": "rollouts", "kind": "Rollout"}]}, None),
        ({"resources": [{"name": "rollouts", "kind": "Rollout"}]}, {"metadata": {"uid": "c"}, "spec": None}),
        (
            {"resources": [{"name": "rollouts", "kind": "Rollout"}]},
            {"metadata": {"uid": "c"}, "spec": {"replicas": "three"}},
        ),
    ],
)
def test_a_scale_of_another_shape_ends_no_round_of_arbitration(listed: Any, scale: Any) -> None:
    bench = Bench()
    owner = {"apiVersion": "example.com/v1", "kind": "Rollout", "name": "c", "uid": "c", "controller": True}
    bench.change(metadata={"ownerReferences": [owner]})
    root = "/apis/example.com/v1"
    bench.cluster.scales[root] = listed
    bench.cluster.scales[f"{root}/namespaces/default/rollouts/c/scale"] = scale
    scene.job(bench.cluster, "web-a", "of another kind", passed=False)
    scene.job(bench.cluster, "web-b", "of a Deployment", passed=False)
    bench.cluster.deliver()
    asyncio.run(bench.plugin.arbitrator.arbitrate())
    passed = "descheduler.koordinator.sh/passed-arbitration"
    assert passed in bench.cluster.job("of a Deployment")["metadata"]["annotations"]


def test_a_job_that_fails_unexpectedly_does_not_keep_others_from_being_let_through() -> None:
    bench = Bench()
    bench.cluster.fault = lambda verb, path, done: RuntimeError("unexpected") if path.endswith("/first") else None
    scene.job(bench.cluster, "web-a", "first", passed=False)
    scene.job(bench.cluster, "web-b", "second", passed=False)
    bench.cluster.deliver()
    asyncio.run(bench.plugin.arbitrator.arbitrate())
    assert "descheduler.koordinator.sh/passed-arbitration" in bench.cluster.job("second")["metadata"]["annotations"]


def test_a_job_of_a_date_beyond_all_time_does_not_keep_others_from_being_scavenged() -> None:
    bench = Bench()
    for name in ("first", "second"):
        scene.job(bench.cluster, "web-a", name, ttl="1s")
    odd = bench.cluster.job("first")
    odd["metadata"]["creationTimestamp"] = "9999-12-31T23:59:59Z"
    bench.cluster.put(POD_MIGRATION_JOBS, odd)
    bench.cluster.deliver()
    asyncio.run(bench.cluster.clock.advance(400))
    (intention,) = asyncio.run(bench.plugin.scavenger.intentions())
    assert "PodMigrationJob second" in intention
    asyncio.run(bench.plugin.scavenger.scavenge())
    assert [job["metadata"]["name"] for job in bench.jobs] == ["first"]
