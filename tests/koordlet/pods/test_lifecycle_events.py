"""Pods and containers that appear among the cgroups, and the refreshes that they cause."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.loops import LoopMetrics
from koordinator.base.metrics import Metrics
from koordinator.koordlet.pods.lifecycle_events import PodLifecycleEvents
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.inotify import FolderWatcher, InotifyError

BURSTABLE = "kubepods.slice/kubepods-burstable.slice"
POD = f"{BURSTABLE}/kubepods-burstable-pod1_2.slice"
CONTAINER = f"{POD}/cri-containerd-4b3c.scope"


class Watched:
    """A version 2 hierarchy, and a count of the refreshes."""

    def __init__(
        self,
        root: Path,
        make_watcher: Callable[[], FolderWatcher] = FolderWatcher,
        driver: CgroupDriver = CgroupDriver.SYSTEMD,
    ) -> None:
        self.root = root
        self.clock = ManualClock()
        self.refreshes = 0
        self.looks: list[str | None] = []
        self.fails = False
        self._refreshed = asyncio.Event()
        layout = CgroupLayout(str(root), CgroupVersion.V2, driver)
        self._events = PodLifecycleEvents(
            layout, self.clock, LoopMetrics(self.clock, Metrics()), self._refresh, self._look_again, make_watcher
        )

    def make(self, folder: str) -> None:
        (self.root / folder).mkdir(parents=True)

    def play(self, story: Callable[[Watched], Awaitable[None]]) -> None:
        async def run() -> None:
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(self._events.run())
                await self.clock.advance(0)
                await story(self)
                running.cancel()

        asyncio.run(run())

    async def has_refreshed(self) -> None:
        """Wait for the kernel's word."""
        async with asyncio.timeout(5):
            await self._refreshed.wait()
        self._refreshed.clear()

    def forget(self) -> None:
        """The refreshes until now."""
        self._refreshed.clear()

    async def is_quiet(self) -> None:
        """What the kernel has to say so far is heard, and has led to nothing."""
        for _ in range(3):
            await asyncio.to_thread(os.sched_yield)
            await self.clock.advance(0)
        assert not self._refreshed.is_set()

    def _look_again(self, folder: str | None) -> None:
        self.looks.append(folder)
        self._refreshed.set()

    async def _refresh(self) -> None:
        self.refreshes += 1
        self._refreshed.set()
        if self.fails:
            raise RuntimeError("a defect")


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_a_new_pod_is_requested_at_once(watched: Watched) -> None:
    watched.make(BURSTABLE)

    async def story(watched: Watched) -> None:
        watched.make(POD)
        await watched.has_refreshed()

    watched.play(story)


def test_a_new_container_is_requested_when_kubelet_has_seen_it(watched: Watched) -> None:
    watched.make(BURSTABLE)

    async def story(watched: Watched) -> None:
        watched.make(POD)
        await watched.has_refreshed()
        watched.make(CONTAINER)
        await watched.is_quiet()
        await watched.clock.advance(2)
        await watched.has_refreshed()

    watched.play(story)


def test_a_new_container_is_requested_again_since_its_id_takes_some_seconds(watched: Watched) -> None:
    watched.make(POD)

    async def story(watched: Watched) -> None:
        watched.make(CONTAINER)
        await watched.is_quiet()
        await watched.clock.advance(60)
        assert watched.refreshes == 3

    watched.play(story)


@pytest.mark.parametrize(
    ("written", "looks"),
    [
        pytest.param([BURSTABLE], [BURSTABLE], id="as the kubelet for each pod that comes"),
        pytest.param([BURSTABLE, "kubepods.slice"], [None], id="as systemd that loads its configuration"),
    ],
)
def test_when_a_weight_is_written_what_systemd_has_written_with_it_is_looked_at_once(
    written: list[str], looks: list[str | None], watched: Watched
) -> None:
    """As it does it, with what was there before."""
    watched.make(BURSTABLE)
    weights = [watched.root / folder / "cpu.weight" for folder in written]
    for weight in weights:
        weight.write_text("79\n")

    async def story(watched: Watched) -> None:
        for weight in weights:
            with weight.open("r+") as file:
                file.write("79\n")
        await watched.is_quiet()
        await watched.clock.advance(1)
        await watched.has_refreshed()
        await watched.clock.advance(60)

    watched.play(story)
    assert (watched.looks, watched.refreshes) == (looks, 0)


def test_without_systemd_a_weight_that_is_written_says_nothing(tmp_path: Path) -> None:
    watched = Watched(tmp_path, driver=CgroupDriver.CGROUPFS)
    watched.make("kubepods/burstable")
    weight = tmp_path / "kubepods/burstable/cpu.weight"
    weight.write_text("79\n")

    async def story(watched: Watched) -> None:
        with weight.open("r+") as file:
            file.write("79\n")
        await watched.is_quiet()
        await watched.clock.advance(60)

    watched.play(story)
    assert watched.looks == []


def test_a_refresh_that_fails_is_not_the_last(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.make(BURSTABLE)
    watched.fails = True

    async def story(watched: Watched) -> None:
        watched.make(POD)
        await watched.has_refreshed()
        await watched.clock.advance(1)
        watched.make(f"{BURSTABLE}/kubepods-burstable-pod2.slice")
        await watched.has_refreshed()

    watched.play(story)
    assert caplog.text.count("the pods could not be refreshed") == 2


def test_a_container_that_is_there_before_its_pod_is_watched(watched: Watched) -> None:
    watched.make(BURSTABLE)

    async def story(watched: Watched) -> None:
        watched.make(CONTAINER)
        await watched.has_refreshed()
        await watched.clock.advance(2)
        await watched.has_refreshed()

    watched.play(story)


def test_a_container_that_starts_anew_in_a_pod_that_was_there_at_the_start(watched: Watched) -> None:
    watched.make(POD)

    async def story(watched: Watched) -> None:
        watched.make(CONTAINER)
        await watched.is_quiet()
        await watched.clock.advance(2)
        await watched.has_refreshed()

    watched.play(story)


def test_folders_that_kubelet_makes_later_are_watched_later(watched: Watched) -> None:
    async def story(watched: Watched) -> None:
        watched.make(BURSTABLE)
        await watched.clock.advance(11)
        watched.make(POD)
        await watched.has_refreshed()

    watched.play(story)


@pytest.mark.parametrize("name", [f"{BURSTABLE}/system.slice", "kubepods.slice/kubepods-besteffort.slice"])
def test_other_folders_are_no_pods(watched: Watched, name: str) -> None:
    watched.make(BURSTABLE)

    async def story(watched: Watched) -> None:
        watched.make(name)
        await watched.is_quiet()

    watched.play(story)


def test_a_hundred_pods_at_once_are_few_questions(watched: Watched) -> None:
    watched.make(BURSTABLE)

    async def story(watched: Watched) -> None:
        for number in range(100):
            watched.make(f"{BURSTABLE}/kubepods-burstable-pod{number}.slice")
        await watched.has_refreshed()
        await watched.clock.advance(5)
        assert watched.refreshes <= 2

    watched.play(story)


def test_pods_that_keep_coming_are_requested_less_and_less_often_and_a_later_one_at_once(watched: Watched) -> None:
    """Each response has all pods of the node."""
    watched.make(BURSTABLE)

    async def story(watched: Watched) -> None:
        for number in range(50):
            watched.make(f"{BURSTABLE}/kubepods-burstable-pod{number}.slice")
            await asyncio.to_thread(os.sched_yield)
            await watched.clock.advance(0.2)
        assert watched.refreshes <= 9
        await watched.clock.advance(10)
        before = watched.refreshes
        watched.forget()
        watched.make(POD)
        await watched.has_refreshed()
        assert watched.refreshes == before + 1

    watched.play(story)


def test_without_inotify_it_ends_quietly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> FolderWatcher:
        raise InotifyError("inotify: Too many open files")

    watched = Watched(tmp_path, refuse)

    async def story(watched: Watched) -> None:
        await watched.clock.advance(1)

    watched.play(story)
    assert "Too many open files" in caplog.text
