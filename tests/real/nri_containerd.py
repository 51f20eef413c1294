"""A containerd that has NRI, built from source: Debian's is older."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.real.go_programs import built, go

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
    return Path(named) if named else built(f"containerd-{_VERSION}", _PROGRAMS, _build)


def _build(folder: Path) -> None:
    """``go install`` refuses the module for what its go.mod excludes; from its own folder, the module can be built."""
    found = go("mod", "download", "-json", f"{_MODULE}@{_VERSION}", seconds=120, GOFLAGS="-mod=mod")
    flags = ("-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-tags=no_btrfs no_devmapper no_zfs no_aufs")
    where = ("-C", json.loads(found)["Dir"], *flags, "-o", f"{folder}/")
    commands = (f"./cmd/{program}" for program in _PROGRAMS)
    go("build", *where, *commands, seconds=_LONGEST_BUILD, GOFLAGS="-mod=readonly")


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
