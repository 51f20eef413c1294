"""The kernel refuses a quota below the burst: bursts are lowered before the kubelet lowers the quotas of a pod."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from koordinator.api.protobuf import nri_pb2 as nri
from koordinator.api.protobuf.runtime_hooks_pb2 import ContainerResourceHookRequest
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.enforce.hooks.hook_server import respond
from koordinator.koordlet.enforce.hooks.nri_plugin import NRIPlugin
from koordinator.koordlet.enforce.hooks.options import NRIOptions
from koordinator.koordlet.enforce.hooks.registry import Stage
from koordinator.koordlet.enforce.strategies import cpu_burst
from koordinator.node.kernel_files import CPU_BURST, Target
from tests.koordlet.enforce.hooks.hooked_node import HookedNode
from tests.runtime_proxy.proxied import run

POD = "kubepods/burstable/podweb"
UPDATES = ("proxy", "NRI")


class Refused(Exception):
    """EINVAL, as the kernel has it."""


class BurstingPod:
    """Two containers of 100 ms each, which with their pod may burst by as much as their quotas."""

    def __init__(self, folder: Path, quota: int = 100_000) -> None:
        self.node = HookedNode(folder)
        for path, its_quota in ((POD, 2 * quota), (f"{POD}/one", quota), (f"{POD}/two", quota)):
            self.node.add_cgroup(path)
            self._write(path, "cpu.cfs_quota_us", its_quota)
            self._write(path, "cpu.cfs_burst_us", 0)
        self.burst(100_000)

    def burst(self, burst: int) -> None:
        """What CPU burst settings of each container."""
        bursts = {POD: 2 * burst, f"{POD}/one": burst, f"{POD}/two": burst}
        settings = [
            DesiredSetting(cpu_burst.OWNER, Target(CPU_BURST, path), value, "") for path, value in bursts.items()
        ]
        self.node.executor.submit(cpu_burst.OWNER, settings)
        self.node.executor.apply()

    async def update(self, container: str, quota: int, by: str = "proxy") -> None:
        """The kubelet requests it, and the runtime does it once it has the response of the hooks."""
        hooks = self.node.starting()
        if by == "proxy":
            request = ContainerResourceHookRequest(pod_cgroup_parent=f"/{POD}")
            request.container_meta.id = container
            request.container_resources.cpu_quota, request.container_resources.cpu_period = quota, 100_000
            await respond(hooks, Stage.PRE_UPDATE_CONTAINER_RESOURCES, request.SerializeToString())
        else:
            update = nri.UpdateContainerRequest(container=nri.Container(id=container))
            update.pod.linux.cgroup_parent = f"/{POD}"
            update.linux_resources.cpu.quota.value, update.linux_resources.cpu.period.value = quota, 100_000
            plugin = NRIPlugin(NRIOptions("no such socket"), hooks, self.node.clock)
            await plugin.handle("/nri.pkg.api.v1alpha1.Plugin/UpdateContainer", update.SerializeToString())
        # A runtime leaves what it is told nothing of.
        if quota:
            self.write_quota(f"{POD}/{container}", quota)

    def write_quota(self, folder: str, quota: int) -> None:
        """As the kubelet or the runtime does."""
        if 0 <= quota < self.shown(folder):
            raise Refused(folder)
        self._write(folder, "cpu.cfs_quota_us", quota)

    def shown(self, folder: str) -> int:
        burst = self.node.executor.present(Target(CPU_BURST, folder))
        assert isinstance(burst, int)
        return burst

    @property
    def bursts(self) -> tuple[int, int, int]:
        """Of the pod and its containers."""
        return self.shown(POD), self.shown(f"{POD}/one"), self.shown(f"{POD}/two")

    def _write(self, folder: str, name: str, value: int) -> None:
        self.node.machine.write(f"/sys/fs/cgroup/cpu/{folder}/{name}", f"{value}\n")


@asynccontextmanager
async def watched(pod: BurstingPod) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(pod.node.resized.run())
        yield
        task.cancel()


@pytest.mark.parametrize("by", UPDATES)
def test_the_kernel_takes_the_lower_quotas_of_a_container_and_its_pod(tmp_path: Path, by: str) -> None:
    async def scenario() -> None:
        pod = BurstingPod(tmp_path)
        await pod.update("one", 40_000, by)
        pod.write_quota(POD, 140_000)
        assert pod.bursts == (140_000, 40_000, 100_000)

    run(scenario())


def test_it_takes_them_when_all_containers_shrink_and_then_their_pod(tmp_path: Path) -> None:
    async def scenario() -> None:
        pod = BurstingPod(tmp_path)
        await pod.update("one", 40_000)
        await pod.update("two", 10_000)
        pod.write_quota(POD, 50_000)
        assert pod.bursts == (50_000, 40_000, 10_000)

    run(scenario())


def test_it_takes_the_quotas_of_a_pod_that_had_none(tmp_path: Path) -> None:
    """Such as one whose quota another feature lifts."""

    async def scenario() -> None:
        pod = BurstingPod(tmp_path, quota=-1)
        await pod.update("one", 40_000)
        pod.write_quota(POD, 60_000)
        assert pod.bursts == (0, 40_000, 100_000)

    run(scenario())


@pytest.mark.parametrize("quota", [100_000, 150_000, 0, -1], ids=["the same", "more", "no word of it", "none"])
def test_a_container_that_does_not_shrink_keeps_its_burst(tmp_path: Path, quota: int) -> None:
    async def scenario() -> None:
        pod = BurstingPod(tmp_path)
        await pod.update("one", quota)
        assert pod.bursts == (200_000, 100_000, 100_000)

    run(scenario())


def test_bursts_that_are_desired_for_stay_low_until_the_kubelet_lists_the_pod_as_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        pod = BurstingPod(tmp_path)
        async with watched(pod):
            await pod.update("one", 40_000)
            await pod.node.clock.advance(20)
            pod.burst(100_000)
            assert pod.bursts == (140_000, 40_000, 100_000)
            await pod.node.clock.advance(10)
            pod.burst(30_000)
        assert pod.bursts == (60_000, 30_000, 30_000)

    run(scenario())


def test_bursts_stay_low_no_longer_once_koordlet_serves_no_runtime(tmp_path: Path) -> None:
    """As when it only observes for a while: what it held would be held again after that."""

    async def scenario() -> None:
        pod = BurstingPod(tmp_path)
        async with watched(pod):
            await pod.update("one", 40_000)
            await pod.node.clock.advance(1)
        pod.burst(90_000)
        assert pod.bursts == (180_000, 90_000, 90_000)

    run(scenario())


def test_a_burst_that_another_program_has_set_is_not_lowered(tmp_path: Path) -> None:
    async def scenario() -> None:
        pod = BurstingPod(tmp_path)
        pod.node.executor.submit(cpu_burst.OWNER, ())
        pod.node.executor.apply()
        with pytest.raises(Refused):
            await pod.update("one", 40_000)
        assert pod.bursts == (200_000, 100_000, 100_000)

    run(scenario())
