"""A containerd that has NRI, built from source: Debian's is older.

The programs stay in a folder below the temporary one, so that it is built once for each user of a machine. Its name
can be guessed, and everybody may write beside it: what others could have put there is not run.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

_MODULE = "github.com/containerd/containerd"
_VERSION = "v1.7.35"
_PROGRAMS = ("containerd", "containerd-shim-runc-v2")
_LONGEST_BUILD = 600.0
"""Seconds; it takes two minutes on two CPUs."""
_CONFIGURED = """#!/bin/sh
set -e
cat >> containerd.toml <<T
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "{socket}"
  plugin_path = "{plugins}"
  plugin_config_path = "{plugins}"
T
exec {containerd} "$@"
"""
"""Stands for containerd where it is started with a ``containerd.toml`` that does not know of NRI."""


def containerd_with_nri() -> Path:
    """The folder with its programs; skips the test where it cannot be built. KOORDINATOR_CONTAINERD names another."""
    named = os.environ.get("KOORDINATOR_CONTAINERD")
    if named:
        return Path(named)
    folder = Path(tempfile.gettempdir()) / f"koordinator-containerd-{_VERSION}-{os.geteuid()}"
    make_private(folder)
    with (folder / "lock").open("w") as lock:
        # Workers of one run, and other runs, wait for the one that builds.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all((folder / program).is_file() for program in _PROGRAMS):
            _build(folder)
    return folder


def make_private(folder: Path) -> None:
    """Creates the folder; raises PermissionError where there is something that another user made or may change."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(
            f"{folder} is not run from: it must be a folder of this user's, with mode 0700; remove it"
        )


def _build(folder: Path) -> None:
    """``go install`` refuses the module for what its go.mod excludes; from its own folder, the module can be built."""
    if shutil.which("go") is None:
        pytest.skip("containerd with NRI is built with Go, which is absent")
    try:
        found = _go("mod", "download", "-json", f"{_MODULE}@{_VERSION}", modules="mod", seconds=120)
        with tempfile.TemporaryDirectory(dir=folder) as built:
            flags = ("-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-tags=no_btrfs no_devmapper no_zfs no_aufs")
            where = ("-C", json.loads(found)["Dir"], *flags, "-o", f"{built}/")
            commands = (f"./cmd/{program}" for program in _PROGRAMS)
            _go("build", *where, *commands, modules="readonly", seconds=_LONGEST_BUILD)
            for program in _PROGRAMS:
                Path(built, program).rename(folder / program)
    except subprocess.TimeoutExpired as error:
        pytest.skip(f"containerd was not built within {error.timeout:.0f} s")
    except subprocess.CalledProcessError as error:
        # Without the module proxy, for one, which is said in the JSON.
        pytest.skip(f"containerd cannot be built: {(error.stderr or error.stdout).strip()[-500:]}")


def _go(*arguments: str, modules: str, seconds: float) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": f"-mod={modules}"}
    done = subprocess.run(
        ["go", *arguments],
        env=environment,
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=True,
    )
    return done.stdout


def put_before_path(programs: Path, folder: Path, socket: Path) -> str:
    """A PATH on which containerd is the one of ``programs``, with NRI at ``socket``."""
    folder.mkdir()
    (folder / "plugins").mkdir()
    for program in _PROGRAMS[1:]:
        (folder / program).symlink_to(programs / program)
    script = folder / "containerd"
    script.write_text(_CONFIGURED.format(socket=socket, plugins=folder / "plugins", containerd=programs / "containerd"))
    script.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"
