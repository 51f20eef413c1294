"""What kubelet writes into the cgroup of a pod that it resizes does not stay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from koordinator.koordlet.enforce.hooks.contexts import starting_container, starting_pod
from koordinator.koordlet.enforce.hooks.registry import Stage
from tests.koordlet.enforce.hooks.hook_fixtures import status
from tests.koordlet.enforce.hooks.hooked_node import HookedNode
from tests.runtime_proxy.proxied import run


class ResizedPod:
    """A pod with CPUs of its own, and so without a quota, on a node of which every file has been written."""

    def __init__(self, folder: Path, name: str = "db") -> None:
        self.node = HookedNode(folder)
        pod = self.node.run_pod(name, "LSR", annotations=status(cpuset="2,3"), resources={"cpu": "2", "memory": "1Gi"})
        self.folder = pod.cgroup
        self.node.run_hooks()
        self._requested = starting_pod(
            "shop", name, name, pod.pod.metadata.labels, pod.pod.metadata.annotations, pod.cgroup
        )

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.node.resized.run())
            yield
            task.cancel()

    def update(self, stage: Stage = Stage.PRE_UPDATE_CONTAINER_RESOURCES) -> None:
        """The runtime asks about the pod's container."""
        self.node.starting().container(
            stage, self._requested, starting_container(self._requested, "c", 70_000, 100_000)
        )

    def write_quota(self) -> None:
        """As kubelet does."""
        self.node.machine.write(f"/sys/fs/cgroup/cpu/{self.folder}/cpu.cfs_quota_us", "70000\n")

    @property
    def quota(self) -> str:
        return self.node.shown(self.folder, "cpu.cfs_quota_us")


def test_a_quota_that_kubelet_has_written_before_it_updates_the_container(tmp_path: Path) -> None:
    async def scenario() -> None:
        pod = ResizedPod(tmp_path)
        pod.write_quota()
        pod.update()
        assert pod.quota == "-1"

    run(scenario())


@pytest.mark.parametrize("after", [0.05, 0.3, 3.0])
def test_a_quota_that_kubelet_writes_after_it_has_updated_the_container(tmp_path: Path, after: float) -> None:
    async def scenario() -> None:
        pod = ResizedPod(tmp_path)
        async with pod.watched():
            pod.update()
            await pod.node.clock.advance(after)
            pod.write_quota()
            await pod.node.clock.advance(after + 5)
        assert pod.quota == "-1"

    run(scenario())


def test_a_second_update_has_its_looks(tmp_path: Path) -> None:
    async def scenario() -> None:
        pod = ResizedPod(tmp_path)
        async with pod.watched():
            pod.update()
            await pod.node.clock.advance(1)
            pod.update()
            await pod.node.clock.advance(8.2)
            pod.write_quota()
            await pod.node.clock.advance(2)
        assert pod.quota == "-1"

    run(scenario())


def test_a_pod_is_left_to_the_executor_when_it_has_been_looked_at_for_long(tmp_path: Path) -> None:
    async def scenario() -> None:
        pod = ResizedPod(tmp_path)
        async with pod.watched():
            pod.update()
            await pod.node.clock.advance(10)
            pod.write_quota()
            await pod.node.clock.advance(10)
            assert pod.node.clock.sleepers == 0
        assert pod.quota == "70000"

    run(scenario())


def test_a_container_that_is_created_is_no_reason_to_look(tmp_path: Path) -> None:
    async def scenario() -> None:
        pod = ResizedPod(tmp_path)
        pod.write_quota()
        pod.update(Stage.PRE_CREATE_CONTAINER)
        assert pod.quota == "70000"

    run(scenario())
