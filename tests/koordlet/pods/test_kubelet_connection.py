"""How the kubelet is configured and where its cgroups are: after a boot, while it is away, and when it has moved."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.listen_address import NOWHERE
from koordinator.base.metrics import Metrics
from koordinator.koordlet.options import Folders, KubeletOptions, Options
from koordinator.koordlet.pods.kubelet_connection import KubeletFollower, KubeletMovedError
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.kube.errors import TransportError
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout
from koordinator.node.kubelet import Kubelet
from tests.in_memory_api import InMemoryApi
from tests.node.machine import FakeMachine
from tests.real_world.kubelet_configurations import kubelet_settings

T = TypeVar("T")


class Boot:
    """A machine whose kubelet is started after koordlet."""

    def __init__(self, root: Path, *, queries: bool = True) -> None:
        self.machine = FakeMachine(root)
        self.machine.write("/sys/fs/cgroup/cpu/cpu.shares", "1024\n")
        self.clock = ManualClock()
        client = InMemoryApi(self.clock).client()
        self.states = StatesInformer(client, "node-1", clock=self.clock, random=Random(1), metrics=Metrics())
        self.document: dict[str, Any] | None = None
        """None while the kubelet does not respond."""
        options = Options(
            listen=NOWHERE,
            folders=Folders.under(root),
            node_name="node-1",
            host=self.machine.host,
            kubelet=KubeletOptions(query_configuration=queries),
        )
        self.follower = KubeletFollower(options, Kubelet(self._get), self.states, self.clock)

    def make(self, folder: str) -> None:
        """The kubelet makes the folder of all pods."""
        self.machine.write(f"/sys/fs/cgroup/cpu/{folder}/cpu.shares", "1024\n")

    async def _get(self, path: str) -> bytes:
        assert path == "/configz"
        if self.document is None:
            raise TransportError("connection refused")
        return json.dumps({"kubeletconfig": self.document}).encode()


def run(story: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(story)


async def layout_after(boot: Boot, seconds: float) -> CgroupLayout | None:
    """None if it is not known yet."""
    task = asyncio.ensure_future(boot.follower.layout())
    await boot.clock.advance(seconds)
    if task.done():
        return task.result()
    task.cancel()
    return None


def test_nothing_is_assumed_before_the_kubelet_is_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert run(layout_after(Boot(tmp_path), 100)) is None
    texts = [record.getMessage() for record in caplog.records]
    unknown = "kubelet does not say how it is configured: connection refused"
    assert texts == [unknown, *[f"waiting for kubelet, which has made no cgroups yet: {unknown}"] * 4]


def test_what_the_kubelet_says_is_known_before_it_has_made_anything(tmp_path: Path) -> None:
    boot = Boot(tmp_path)

    async def story() -> CgroupLayout | None:
        task = asyncio.ensure_future(layout_after(boot, 10))
        await asyncio.sleep(0)
        boot.document = {"cgroupDriver": "systemd"}
        return await task

    layout = run(story())
    assert layout is not None
    assert (layout.driver, layout.kubepods) == (CgroupDriver.SYSTEMD, "kubepods.slice")


def test_a_cgroup_root_as_people_set_it(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    boot.document = dict(kubelet_settings("cgroup-root").fields)
    layout = run(layout_after(boot, 0))
    assert layout is not None
    assert layout.kubepods == "machine/kubepods"


def test_a_kubelet_in_a_namespace_of_its_own_is_found_by_its_folders(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    boot.document = {"cgroupDriver": "systemd", "cgroupRoot": "/kubelet"}
    boot.make("docker/4b3c/kubelet.slice/kubelet-kubepods.slice")
    layout = run(layout_after(boot, 0))
    assert layout is not None
    assert layout.kubepods == "docker/4b3c/kubelet.slice/kubelet-kubepods.slice"


def test_a_kubelet_that_is_not_to_be_queried_is_found_by_its_folders(tmp_path: Path) -> None:
    boot = Boot(tmp_path, queries=False)
    assert run(layout_after(boot, 5)) is None
    boot.make("kubelet/kubepods")
    layout = run(layout_after(boot, 1))
    assert layout is not None
    assert (layout.driver, layout.kubepods) == (CgroupDriver.CGROUPFS, "kubelet/kubepods")


def test_a_kubelet_that_is_away_leaves_what_it_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    boot = Boot(tmp_path)
    boot.document = {"cpuCFSQuota": False}

    async def story() -> None:
        layout = await boot.follower.layout()
        boot.document = None
        task = asyncio.ensure_future(boot.follower.follow(layout))
        await boot.clock.advance(200)
        task.cancel()

    caplog.set_level(logging.WARNING)
    run(story())
    assert boot.states.kubelet_configuration is not None
    assert not boot.states.kubelet_configuration.enforces_cpu_limits
    assert caplog.text.count("kubelet does not say how it is configured") == 1


def test_a_kubelet_with_another_setting_is_followed(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    boot.document = {}

    async def story() -> None:
        layout = await boot.follower.layout()
        boot.document = {"cpuCFSQuota": False}
        task = asyncio.ensure_future(boot.follower.follow(layout))
        await boot.clock.advance(31)
        task.cancel()

    run(story())
    assert boot.states.kubelet_configuration is not None
    assert not boot.states.kubelet_configuration.enforces_cpu_limits


def test_a_kubelet_with_another_driver_ends_the_agent(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    boot.document = {"cgroupDriver": "cgroupfs"}
    boot.make("kubepods")

    async def story() -> None:
        layout = await boot.follower.layout()
        boot.document = {"cgroupDriver": "systemd"}
        boot.make("kubepods.slice")
        task = asyncio.ensure_future(boot.follower.follow(layout))
        await boot.clock.advance(31)
        await task

    with pytest.raises(KubeletMovedError, match=r"in kubepods\.slice now, by the driver systemd"):
        run(story())
