"""A kernel with cgroup version 2, where this machine's has version 1: user-mode Linux with this machine's files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

_HERE = Path(__file__).resolve().parent
_REPOSITORY = _HERE.parents[1]
_SECONDS = 300
_DISK_BYTES = 16 << 20


def result_here(module: str) -> dict[str, Any]:
    """The document that a program of the tests prints last, on this machine's kernel; the test fails where it does."""
    return _response([sys.executable, "-m", module])


def result_on_cgroup2(module: str) -> dict[str, Any]:
    """The same in a virtual machine with one disk, ``/dev/ubda``; skips the test where there is none."""
    shared = Path(os.environ.get("KOORDINATOR_SHARED") or _REPOSITORY.parent / "shared")
    runner = shared / "tools/cgroup2-run.sh"
    if not runner.is_file():
        pytest.skip("there is no program that runs a command on a kernel with cgroup version 2")
    kernel = shutil.which("linux.uml")
    if kernel is None:
        pytest.skip("user-mode Linux is absent: apt-get install user-mode-linux")
    with tempfile.TemporaryDirectory(prefix="cgroup2-") as folder:
        _make_kernel(kernel, Path(folder))
        return _response([str(runner), sys.executable, "-m", module], PATH=f"{folder}:{os.environ['PATH']}")


def _make_kernel(kernel: str, folder: Path) -> None:
    """A ``linux.uml`` with a disk that starts on this CPU, in the folder."""
    image = folder / "disk"
    with image.open("wb") as file:
        file.truncate(_DISK_BYTES)
    preload = f"LD_PRELOAD={_amx_state(folder)} " if " amx_tile" in Path("/proc/cpuinfo").read_text() else ""
    program = folder / "linux.uml"
    program.write_text(f'#!/bin/sh\n{preload}exec {kernel} ubda={image} "$@"\n')
    program.chmod(0o755)


def _amx_state(folder: Path) -> Path:
    """A library with which user-mode Linux starts on a CPU with AMX."""
    library = folder / "amx_state.so"
    try:
        command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(_HERE / "amx_state.c")]
        subprocess.run(command, check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"user-mode Linux cannot start on a CPU with AMX: apt-get install gcc libc6-dev ({error})")
    return library


def _response(command: list[str], **variables: str) -> dict[str, Any]:
    variables = {**os.environ, **variables, "TIMEOUT": str(_SECONDS)}
    done = subprocess.run(
        command, cwd=_REPOSITORY, env=variables, capture_output=True, text=True, timeout=_SECONDS + 20, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    response: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return response
