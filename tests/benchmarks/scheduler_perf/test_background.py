from __future__ import annotations

import asyncio
from typing import Any

import pytest

from benchmarks.scheduler_perf.background import churn, delete_pods
from benchmarks.scheduler_perf.operations import Churn, DeletePods
from koordinator.api.codec import convert
from koordinator.api.kinds import Kind
from koordinator.api.pod import Pod
from koordinator.kube.interface import ListPage
from tests.kube.fake_client import as_client, not_found

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "pod-"}}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"generateName": "node-"}}


class Enough(Exception):
    """Ends what would go on for ever."""


class Recorder:
    """Keeps what is done, the waits between included."""

    def __init__(self, ticks: int) -> None:
        self.log: list[str] = []
        self.gone = ""
        self._ticks = ticks

    async def sleep(self, seconds: float) -> None:
        if self._ticks == 0:
            raise Enough
        self._ticks -= 1
        self.log.append(f"{seconds:g} s")

    async def create(self, kind: Kind[Any], body: dict[str, Any], namespace: str = "") -> Any:
        name = f"{body['metadata']['generateName']}{len(self.log)}"
        self.log.append(f"create {namespace}/{name}")
        return convert({"metadata": {"name": name}}, kind.type)

    async def delete(self, kind: Kind[Any], name: str, namespace: str = "") -> None:
        if name == self.gone:
            raise not_found(name)
        self.log.append(f"delete {namespace}/{name}")

    async def list(self, kind: Kind[Any], namespace: str, *, label_selector: str) -> ListPage[Pod]:
        names = ("a", "b")
        return ListPage([convert({"metadata": {"name": name}}, Pod) for name in names], [], "1", "", None)


def churned(operation: Churn, *documents: dict[str, Any], ticks: int) -> list[str]:
    recorder = Recorder(ticks)
    with pytest.raises(Enough):
        asyncio.run(churn(as_client(recorder), operation, documents, "ns", recorder.sleep))
    return recorder.log


def test_creating_goes_on() -> None:
    operation = Churn(mode="create", template_paths=["pod"], interval_milliseconds=200)
    assert churned(operation, POD, ticks=2) == ["0.2 s", "create ns/pod-1", "0.2 s", "create ns/pod-3"]


def test_creating_ends_at_its_number() -> None:
    recorder = Recorder(5)
    operation = Churn(mode="create", template_paths=["pod"], number=2)
    asyncio.run(churn(as_client(recorder), operation, [POD], "ns", recorder.sleep))
    assert recorder.log == ["0.5 s", "create ns/pod-1", "0.5 s", "create ns/pod-3"]


def test_recreating_deletes_what_it_created() -> None:
    operation = Churn(mode="recreate", template_paths=["pod"], number=1)
    log = churned(operation, POD, ticks=3)
    assert [entry for entry in log if entry != "0.5 s"] == ["create ns/pod-1", "delete ns/pod-1", "create ns/pod-5"]


def test_recreating_keeps_as_many_as_its_number() -> None:
    operation = Churn(mode="recreate", template_paths=["pod"], number=2)
    verbs = [entry.split()[0] for entry in churned(operation, POD, ticks=6) if entry != "0.5 s"]
    assert verbs == ["create", "create", "delete", "delete", "create", "create"]


def test_kinds_without_a_namespace_get_none() -> None:
    operation = Churn(mode="create", template_paths=["node", "pod"])
    assert churned(operation, NODE, POD, ticks=1) == ["0.5 s", "create /node-1", "create ns/pod-2"]


def test_pods_are_deleted_at_a_rate() -> None:
    recorder = Recorder(5)
    asyncio.run(delete_pods(as_client(recorder), DeletePods(namespace="ns", delete_pods_per_second=50), recorder.sleep))
    assert recorder.log == ["0.02 s", "delete ns/a", "0.02 s", "delete ns/b"]


def test_pods_that_are_gone_need_not_be_deleted() -> None:
    recorder = Recorder(5)
    recorder.gone = "a"
    asyncio.run(delete_pods(as_client(recorder), DeletePods(namespace="ns", delete_pods_per_second=50), recorder.sleep))
    assert recorder.log == ["0.02 s", "0.02 s", "delete ns/b"]
