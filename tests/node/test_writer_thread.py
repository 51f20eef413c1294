"""Kernel files that are written on a thread of their own: what is slow, what is refused, and what waits."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from koordinator.base.clock import ManualClock
from koordinator.node.errors import MissingFileError
from koordinator.node.kernel_writer import MachineFiles, RefusedWriteError
from koordinator.node.writer_thread import UnfinishedWriteError, WriterThread


class SlowFiles(MachineFiles):
    """A write waits until it may go on; ``refuses`` raises what the kernel would."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()
        self.ended = threading.Event()
        self.refuses = False

    def write(self, path: str, content: str) -> None:
        self.may_go_on.wait()
        if self.refuses:
            raise RefusedWriteError(path, content, OSError(errno.EBUSY, "busy"))
        super().write(path, content)
        self.ended.set()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "memory.max"
    path.write_text("max\n")
    return path


def test_a_write_that_takes_long_ends_by_itself_and_others_wait_for_it(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, clock = SlowFiles(), ManualClock()
    writer = WriterThread(files, clock, seconds=0.01)
    with pytest.raises(UnfinishedWriteError, match="is still being written by the kernel"):
        writer.write(str(file), "1\n")
    asyncio.run(clock.advance(3))
    for _ in range(2):
        with pytest.raises(UnfinishedWriteError, match=r"waits for .*memory\.max, which the kernel is still writing"):
            writer.write(f"{file}.other", "2\n")
    assert [record.getMessage() for record in caplog.records] == [
        f"the kernel has been writing {file} for 3 s; other files wait for it"
    ]
    assert writer.read(str(file)) == "max\n"
    files.may_go_on.set()
    assert files.ended.wait(10)
    assert file.read_text() == "1\n"


def test_what_the_kernel_says_is_passed_on(file: Path) -> None:
    files = SlowFiles()
    files.may_go_on.set()
    writer = WriterThread(files, ManualClock(), seconds=10.0)
    with pytest.raises(MissingFileError):
        writer.write(f"{file}.gone", "1\n")
    files.refuses = True
    with pytest.raises(RefusedWriteError, match="EBUSY"):
        writer.write(str(file), "1\n")
    files.refuses = False
    writer.write(str(file), "1\n")
    assert file.read_text() == "1\n"
