"""Operations against a client that keeps what it is told, and a scheduler that binds pods at once while it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from benchmarks.process_usage import Usage
from benchmarks.scheduler_perf.executor import Created, Executor
from benchmarks.scheduler_perf.operations import (
    AnyOperation,
    Barrier,
    CreateAny,
    CreateNamespaces,
    CreateNodes,
    CreatePods,
    DeletePods,
    NodeAllocatable,
    Sleep,
    Stage,
    StartCollectingMetrics,
    StopCollectingMetrics,
)
from benchmarks.scheduler_perf.pod_tracker import Key, ObservedPod, PodTracker
from benchmarks.scheduler_perf.templates import Templates
from koordinator.api.codec import convert
from koordinator.api.kinds import Kind
from koordinator.base.errors import KoordinatorError
from koordinator.kube.interface import WatchEvent
from tests.kube.fake_client import as_client


class Cluster:
    """Client and scheduler in one. Pods whose name starts with ``never`` fit nowhere."""

    def __init__(self) -> None:
        self.tracker = PodTracker()
        self.created: list[tuple[str, str, dict[str, Any]]] = []
        self.patched: list[str] = []
        self.deleted: list[str] = []
        self.paused = False
        self.pauses = 0
        self.rests: list[int] = []
        """How many pods there were each time that the scheduler was let come to rest."""
        self._waiting: list[Key] = []

    async def create(self, kind: Kind[Any], body: dict[str, Any], namespace: str = "") -> Any:
        metadata = body["metadata"]
        name = metadata.get("name") or f"{metadata['generateName']}{len(self.created)}"
        self.created.append((kind.plural, f"{namespace}/{name}" if namespace else name, body))
        if kind.plural == "pods":
            self._waiting.append((namespace, name))
            if not self.paused:
                self._schedule()
        return convert({"metadata": {**metadata, "name": name}}, kind.type)

    async def patch(self, kind: Kind[Any], name: str, *_: Any, subresource: str) -> None:
        self.patched.append(f"{kind.plural}/{name}/{subresource}")

    async def delete_collection(self, kind: Kind[Any], namespace: str, *, label_selector: str) -> None:
        self.deleted.append(f"{kind.plural} {namespace} {label_selector}")

    def usage(self) -> Usage:
        return Usage(1.0, 1)

    def pause(self) -> None:
        self.paused = True
        self.pauses += 1

    def resume(self) -> None:
        self.paused = False
        self._schedule()

    async def until_quiet(self, limit: float) -> None:
        self.rests.append(len(self.names("pods")))

    def names(self, plural: str) -> list[str]:
        return [name for kind, name, _ in self.created if kind == plural]

    def _schedule(self) -> None:
        for namespace, name in self._waiting:
            document: dict[str, Any] = {"metadata": {"name": name, "namespace": namespace}}
            if name.startswith("never"):
                document["status"] = {"conditions": [{"type": "PodScheduled", "status": "False"}]}
            else:
                document["spec"] = {"nodeName": "node"}
            self.tracker.on_event(WatchEvent("MODIFIED", convert(document, ObservedPod), "1"))
        self._waiting.clear()


def run(
    *operations: AnyOperation, folder: Path = Path(), created: Created = Created.BEFORE
) -> tuple[Cluster, Executor]:
    async def go() -> tuple[Cluster, Executor]:
        cluster = Cluster()
        async with asyncio.TaskGroup() as tasks:
            executor = Executor(
                as_client(cluster), Templates(folder), None, cluster.tracker, cluster, tasks, 0.05, created
            )
            await executor.run(operations)
        return cluster, executor

    return asyncio.run(go())


def refusal(*operations: AnyOperation, folder: Path = Path()) -> str:
    with pytest.raises(ExceptionGroup) as caught:
        run(*operations, folder=folder)
    (error,) = caught.value.exceptions
    assert isinstance(error, KoordinatorError)
    return str(error)


def never(folder: Path) -> Path:
    (folder / "never.yaml").write_text("{metadata: {generateName: never-, labels: {type: never}}, spec: {}}")
    return folder


def test_pods_get_a_namespace_of_their_own() -> None:
    cluster, executor = run(CreatePods(count=2), CreatePods(count=1, namespace="mine"))
    assert cluster.names("namespaces") == ["namespace-0", "mine"]
    assert [namespace for namespace, _ in executor.must_be_bound] == ["namespace-0", "namespace-0", "mine"]


def test_what_is_measured_lasts_from_rest_to_rest() -> None:
    cluster, _ = run(CreatePods(count=2), CreatePods(count=3, collect_metrics=True))
    assert cluster.rests == [2, 5]


def test_namespaces_are_numbered_and_created_once() -> None:
    cluster, _ = run(CreateNamespaces(prefix="sched", count=2), CreatePods(count=1, namespace="sched-1"))
    assert cluster.names("namespaces") == ["sched-0", "sched-1"]


def test_nodes_of_two_operations_have_different_names(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text("{metadata: {generateName: node-}}")
    operation = CreateNodes(count=2, node_template_path="node.yaml")
    cluster, _ = run(operation, operation, folder=tmp_path)
    assert cluster.names("nodes") == ["node-00000", "node-00001", "node-00002", "node-00003"]


def test_allocatable_volumes_bring_a_csi_node() -> None:
    cluster, _ = run(CreateNodes(count=1, node_allocatable_strategy=NodeAllocatable()))
    assert cluster.names("csinodes") == cluster.names("nodes")


def test_volumes_come_bound_before_their_pod(tmp_path: Path) -> None:
    (tmp_path / "claim.yaml").write_text("spec: {}")
    (tmp_path / "volume.yaml").write_text("spec: {csi: {driver: d}}")
    cluster, _ = run(
        CreatePods(
            count=1,
            namespace="ns",
            persistent_volume_claim_template_path="claim.yaml",
            persistent_volume_template_path="volume.yaml",
        ),
        folder=tmp_path,
    )
    kinds = [plural for plural, _, _ in cluster.created]
    assert kinds == ["namespaces", "persistentvolumeclaims", "persistentvolumes", "pods"]
    assert cluster.patched == ["persistentvolumeclaims/pvc-0/status", "persistentvolumes/ns-vol-0/status"]
    assert cluster.created[-1][2]["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "pvc-0"}


def test_measured_pods_are_created_while_the_scheduler_stands_still() -> None:
    cluster, executor = run(CreatePods(count=3), CreatePods(count=20, collect_metrics=True))
    assert [one.pods for one in executor.measurements] == [20]
    assert cluster.pauses == 1


def test_measured_pods_may_be_created_while_the_scheduler_runs() -> None:
    cluster, executor = run(CreatePods(count=20, collect_metrics=True), created=Created.DURING)
    assert [one.pods for one in executor.measurements] == [20]
    assert cluster.pauses == 0


def test_a_collection_can_span_operations() -> None:
    _, executor = run(
        StartCollectingMetrics(name="both", namespaces=["a", "b"]),
        CreatePods(count=2, namespace="a"),
        CreatePods(count=3, namespace="b"),
        CreatePods(count=4, namespace="c"),
        StopCollectingMetrics(),
    )
    assert [(one.name, one.pods) for one in executor.measurements] == [("both", 5)]


def test_collections_do_not_overlap() -> None:
    start = StartCollectingMetrics(namespaces=["a"])
    assert "operation 1 (startCollectingMetrics)" in refusal(start, start)


def test_a_collection_must_have_been_started() -> None:
    assert "not being collected" in refusal(StopCollectingMetrics())


def test_pods_that_do_not_fit_end_the_run(tmp_path: Path) -> None:
    operation = CreatePods(count=1, pod_template_path="never.yaml")
    assert "operation 0 (createPods): 1 pods were not bound" in refusal(operation, folder=never(tmp_path))


def test_pods_need_not_be_waited_for(tmp_path: Path) -> None:
    operation = CreatePods(count=1, pod_template_path="never.yaml", skip_wait_to_completion=True)
    _, executor = run(operation, folder=never(tmp_path))
    assert executor.must_be_bound == []


def test_a_barrier_waits_for_pods_left_behind(tmp_path: Path) -> None:
    operation = CreatePods(count=1, pod_template_path="never.yaml", skip_wait_to_completion=True)
    assert "operation 1 (barrier)" in refusal(operation, Barrier(), folder=never(tmp_path))


def test_a_barrier_can_be_content_with_an_attempt(tmp_path: Path) -> None:
    operation = CreatePods(count=1, pod_template_path="never.yaml", skip_wait_to_completion=True)
    _, executor = run(operation, Barrier(stage_requirement=Stage.ATTEMPTED), folder=never(tmp_path))
    assert executor.must_be_bound == []


def test_a_barrier_can_be_for_some_labels(tmp_path: Path) -> None:
    left = CreatePods(count=1, pod_template_path="never.yaml", skip_wait_to_completion=True, namespace="ns")
    fit = CreatePods(count=2, skip_wait_to_completion=True, namespace="ns")
    with pytest.raises(ExceptionGroup):
        run(left, fit, Barrier(label_selector={"type": "never"}), folder=never(tmp_path))
    run(left, fit, Barrier(label_selector={"type": "other"}), folder=tmp_path)


def test_what_a_barrier_has_waited_for_must_be_bound() -> None:
    _, executor = run(CreatePods(count=2, skip_wait_to_completion=True), Barrier())
    assert len(executor.must_be_bound) == 2


def test_a_barrier_knows_its_namespaces() -> None:
    assert "['a']" in refusal(Barrier(namespaces=["a"]))


def test_pods_are_deleted_by_labels() -> None:
    cluster, _ = run(DeletePods(namespace="ns", label_selector={"a": "1", "b": "2"}))
    assert cluster.deleted == ["pods ns a=1,b=2"]


def test_anything_else_can_be_created(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(
        "{apiVersion: v1, kind: Service, metadata: {name: 's-{{.Index}}-{{.Count}}'}}"
    )
    cluster, _ = run(CreateAny(template_path="service.yaml", namespace="ns", count=2), folder=tmp_path)
    assert cluster.names("services") == ["ns/s-0-2", "ns/s-1-2"]


def test_a_namespaced_kind_needs_a_namespace(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text("{apiVersion: v1, kind: Service, metadata: {name: s}}")
    assert "operation 0 (createAny)" in refusal(CreateAny(template_path="service.yaml"), folder=tmp_path)


def test_a_sleep_of_nothing_is_over_at_once() -> None:
    run(Sleep(duration="0s"), Sleep())
