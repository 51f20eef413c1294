"""The floor of what reading costs: what a small C loop needs that reads the same files of the kernel at the same rate.

Which files a process reads, and how often, strace says: so the floor stays that of the agent as it is now. A file that
the process keeps open is kept open by the loop, and one that it opens each time is opened each time. Folders that are
listed, files that are written and what comes over sockets are no part of it.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_SOURCE: Final = Path(__file__).with_name("read_files.c")
_CALLS: Final = "open,openat,openat2,pread64"
_OPENED: Final = re.compile(r"^open\w*\(.*O_RDONLY.* = \d+<(/(?:proc|sys)/[^>]*)>$")
_READ: Final = re.compile(r"^pread64\(\d+<(/(?:proc|sys)/[^>]*)>.* = \d+$")


@dataclass(frozen=True, slots=True)
class FilesRead:
    """How often each file was read within ``seconds``, by path."""

    seconds: int
    kept: Mapping[str, int]
    """Through a descriptor that stays open."""
    opened: Mapping[str, int]

    @property
    def per_second(self) -> float:
        return (sum(self.kept.values()) + sum(self.opened.values())) / self.seconds


def files_read_by(process_id: int, folder: Path, seconds: int) -> FilesRead:
    """Watch a process that runs, which takes longer for each system call meanwhile. ``folder`` is empty.

    RuntimeError where strace cannot.
    """
    command = ["strace", "-ff", "-y", "-s", "0", "-e", f"trace={_CALLS}", "-o", str(folder / "calls")]
    tracer = subprocess.Popen([*command, "-p", str(process_id)], stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    said = tracer.stderr.readline()
    if "attached" not in said:
        tracer.wait(10)
        raise RuntimeError(f"strace: {said}{tracer.stderr.read()}")
    time.sleep(seconds)
    tracer.send_signal(signal.SIGINT)
    tracer.communicate(timeout=20)
    # A file for each thread, so that no call is cut by that of another.
    return counted((line for file in folder.iterdir() for line in file.read_text().splitlines()), seconds)


def counted(lines: Iterable[str], seconds: int) -> FilesRead:
    """What strace has printed of system calls."""
    opened, read = Counter[str](), Counter[str]()
    for line in lines:
        if "O_DIRECTORY" in line:
            continue
        if found := _OPENED.match(line):
            opened[found[1]] += 1
        elif found := _READ.match(line):
            read[found[1]] += 1
    # What is opened may be read by the same call as what is kept.
    return FilesRead(seconds, read - opened, opened)


def floor_percent(files: FilesRead, folder: Path) -> float:
    """Percent of a core that the loop needs for them. RuntimeError where most of them are gone."""
    program, listed = folder / "read_files", folder / "list"
    subprocess.run(["gcc", "-O2", "-o", str(program), str(_SOURCE)], check=True)
    rows = [*(("kept", *row) for row in files.kept.items()), *(("opened", *row) for row in files.opened.items())]
    listed.write_text("".join(f"{kind} {count} {path}\n" for kind, path, count in rows))
    command = [str(program), str(listed), str(files.seconds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    micros, read, failed = map(int, done.stdout.split())
    if failed > read:
        raise RuntimeError(f"{failed} of {read + failed} files cannot be read any more")
    return micros / files.seconds / 1e4


def figures(files: FilesRead, floor: float, used: float) -> dict[str, Any]:
    """``floor`` and what the process ``used``, in percent of a core."""
    return {
        "cpu_percent_of_core": round(floor, 2),
        "files_per_second": round(files.per_second),
        "of_these_opened_each_time": round(sum(files.opened.values()) / files.seconds),
        "share_of_ours_above": round(1 - floor / used, 2),
        "ours_times_floor": round(used / floor, 1),
    }
