"""The agent on kernel files that cannot be read, are nonsense, or whose counters wrap: it goes on, and recovers."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from tests.koordlet.node_under_test import POD_FOLDER, NodeUnderTest, cpu_of, play, usage

MACHINE = ("/proc/stat", "/proc/meminfo")
OF_THE_POD = (f"/{POD_FOLDER}/cpu.stat", f"/{POD_FOLDER}/memory.stat")


@pytest.fixture
def node(tmp_path: Path) -> NodeUnderTest:
    return NodeUnderTest(tmp_path)


def test_all_kernel_files_are_nonsense_for_a_while(node: NodeUnderTest) -> None:
    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(30)
        files = (*node.machine.root.glob("proc/*"), *node.machine.root.glob(f"sys/fs/cgroup/{POD_FOLDER}/*.stat"))
        for path in filter(Path.is_file, files):
            path.write_bytes(b"\xff\x00 nonsense\n")
        await node.clock.advance(10)
        await node.pass_seconds(115)

    status = play(node, story)
    assert cpu_of(status, "nodeUsage") == "2"
    assert status["podsMetric"][0]["podUsage"] == usage("500m", "1Gi")


def test_kernel_files_that_cannot_be_read_cost_the_rounds_in_which_they_cannot(node: NodeUnderTest) -> None:
    """A folder in the place of a file: the kernel refuses to read it, root included."""

    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(30)
        hidden = [node.machine.root / "proc/stat", node.machine.root / "proc/meminfo"]
        for path in hidden:
            path.unlink()
            path.mkdir()
        await node.clock.advance(10)
        for path in hidden:
            path.rmdir()
        await node.pass_seconds(115)

    status = play(node, story)
    assert cpu_of(status, "nodeUsage") == "2"
    assert status["podsMetric"][0]["podUsage"] == usage("500m", "1Gi")


def test_a_counter_that_begins_anew_is_no_usage(node: NodeUnderTest) -> None:
    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(70)
        node.pod_cpu = 0
        await node.pass_seconds(55)

    assert play(node, story)["podsMetric"][0]["podUsage"] == usage("500m", "1Gi")


def test_a_machine_file_that_breaks_costs_its_rounds_only(node: NodeUnderTest) -> None:
    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(30)
        node.break_meminfo = True
        await node.pass_seconds(20)
        node.break_meminfo = False
        await node.pass_seconds(75)

    assert cpu_of(play(node, story), "nodeUsage") == "2"


class Refusals:
    """System calls of this process that the kernel refuses for files whose paths end so: opening and reading."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: tuple[str, ...] = ()
        self.on_open: int | None = None
        self.on_read: int | None = None
        self.count = 0
        self._open, self._read, self._pread = os.open, os.read, os.pread
        monkeypatch.setattr(os, "open", self._opened)
        monkeypatch.setattr(os, "read", self._was_read)
        monkeypatch.setattr(os, "pread", self._was_read_at)

    def _opened(self, path: str, flags: int, mode: int = 0o777) -> int:
        if self.on_open is not None and str(path).endswith(self.paths):
            self._refuse(self.on_open, path)
        return self._open(path, flags, mode)

    def _was_read(self, descriptor: int, size: int) -> bytes:
        self._reading(descriptor)
        return self._read(descriptor, size)

    def _was_read_at(self, descriptor: int, size: int, offset: int) -> bytes:
        self._reading(descriptor)
        return self._pread(descriptor, size, offset)

    def _reading(self, descriptor: int) -> None:
        if self.on_read is None:
            return
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.endswith(self.paths):
            self._refuse(self.on_read, path)

    def _refuse(self, number: int, path: str) -> None:
        self.count += 1
        raise OSError(number, os.strerror(number), path)


@pytest.mark.parametrize("paths", [MACHINE, OF_THE_POD], ids=["of the machine", "of a pod"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_files_that_the_kernel_refuses_to_read_cost_the_rounds_in_which_it_does(
    node: NodeUnderTest,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
    paths: tuple[str, ...],
) -> None:
    refusals = Refusals(monkeypatch)

    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(30)
        caplog.clear()
        refusals.paths, refusals.on_open, refusals.on_read = paths, number, number
        await node.pass_seconds(20)
        refusals.on_open = refusals.on_read = None
        said.extend(record for record in caplog.records if os.strerror(number) in record.getMessage())
        await node.pass_seconds(75)

    said: list[logging.LogRecord] = []
    status = play(node, story)
    assert refusals.count >= 10
    # Once for each file, or for the loop that reads them.
    assert 1 <= len(said) <= len(paths)
    assert cpu_of(status, "nodeUsage") == "2"
    assert status["podsMetric"][0]["podUsage"] == usage("500m", "1Gi")


@pytest.mark.parametrize("bits", [32, 64])
def test_counters_that_wrap_are_no_usage(node: NodeUnderTest, bits: int) -> None:
    """The reading behind a wrap says nothing; the next one does."""
    end = (1 << bits) - 1
    node.pod_cpu = end - 30 * 500_000
    node.busy_ticks = end - 30 * 200

    async def story(node: NodeUnderTest) -> None:
        for _ in range(125):
            await node.pass_seconds(1)
            node.pod_cpu &= end
            node.busy_ticks &= end

    status = play(node, story)
    assert node.pod_cpu < 1 << 27
    assert cpu_of(status, "nodeUsage") == "2"
    assert status["podsMetric"][0]["podUsage"] == usage("500m", "1Gi")
