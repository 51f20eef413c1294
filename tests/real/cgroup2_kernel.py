"""A kernel with cgroup version 2, where this machine's has version 1: user-mode Linux with this machine's files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]
_SECONDS = 300


def answer_here(module: str) -> dict[str, Any]:
    """The document that a program of the tests prints last, on this machine's kernel; the test fails where it does."""
    return _answer([sys.executable, "-m", module])


def answer_on_cgroup2(module: str) -> dict[str, Any]:
    """The same in a virtual machine; skips the test where there is none."""
    shared = Path(os.environ.get("KOORDINATOR_SHARED") or _REPOSITORY.parent / "shared")
    runner = shared / "tools/cgroup2-run.sh"
    if not runner.is_file():
        pytest.skip("there is no program that runs a command on a kernel with cgroup version 2")
    if shutil.which("linux.uml") is None:
        pytest.skip("user-mode Linux is absent: apt-get install user-mode-linux")
    return _answer([str(runner), sys.executable, "-m", module])


def _answer(command: list[str]) -> dict[str, Any]:
    variables = {**os.environ, "TIMEOUT": str(_SECONDS)}
    done = subprocess.run(
        command, cwd=_REPOSITORY, env=variables, capture_output=True, text=True, timeout=_SECONDS + 20, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
