"""The executor on real cgroups: version 1 of this machine's kernel, version 2 of a kernel in a virtual machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from koordinator.node.cgroup_layout import CgroupVersion, detect_version
from koordinator.node.host import Host

_REPOSITORY = Path(__file__).resolve().parents[2]
_WRITES = [sys.executable, "-m", "tests.real.cgroup_writes"]
_DONE = ("written", "there already")
_LOSSY = {"parent/child cpu.shares": (1024, 999), "parent memory.min": (4097, 4096)}
"""A weight stands for many numbers of shares, and protection is in whole pages."""


@pytest.fixture(params=[CgroupVersion.V1, CgroupVersion.V2])
def answer(request: pytest.FixtureRequest) -> dict[str, Any]:
    command = _WRITES
    if os.geteuid() != 0:
        pytest.skip("making cgroups needs root")
    if request.param is not detect_version(Host()):
        shared = Path(os.environ.get("KOORDINATOR_SHARED") or _REPOSITORY.parent / "shared")
        runner = shared / "tools/cgroup2-run.sh"
        if request.param is CgroupVersion.V1 or not runner.is_file() or shutil.which("linux.uml") is None:
            pytest.skip(f"there is no kernel here with cgroup version {request.param.value}")
        command = [str(runner), *_WRITES]
    done = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["version"] == request.param.value
    return found


def test_the_kernel_shows_what_was_wished_after_every_step(answer: dict[str, Any]) -> None:
    for step in answer["steps"]:
        for name, (wished, shown, outcome) in step.items():
            if outcome == "the kernel has no such file":
                assert shown is None, name
                continue
            assert outcome in _DONE, (name, outcome)
            assert shown == wished or (wished, shown) == _LOSSY[name], name


def test_what_a_version_lacks_is_said(answer: dict[str, Any]) -> None:
    lacking = {name for step in answer["steps"] for name, (_, _, outcome) in step.items() if outcome not in _DONE}
    protection = {f"parent memory.{name}" for name in ("min", "low", "high", "oom.group")}
    assert lacking - {"parent/child cpu.cfs_burst_us"} == (protection if answer["version"] == 1 else set())
