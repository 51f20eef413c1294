"""The releases between which an upgrade goes: what starts each program of the Go original, of this checkout, or of our
last release, which is taken from the history of this repository."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.real.installation import REPOSITORY
from tests.real.programs import RealPrograms

LAST_RELEASE: Final = ("0.1.0", "f33e367c")
"""Version and commit. Nothing else says which one is upgraded from; docs/upgrade.md is checked against it."""
_MODULES: Final = {
    "koord-manager": "koordinator.manager",
    "koord-scheduler": "koordinator.scheduler",
    "koord-descheduler": "koordinator.descheduler",
    "koordlet": "koordinator.koordlet",
}


@dataclass(frozen=True, slots=True)
class Release:
    """``name`` is part of the names of users and of files. ``original`` is the folder of the Go original's programs,
    None for ours."""

    name: str
    original: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, program: str) -> list[str]:
        if self.original is not None:
            return [str(self.original / program)]
        return [sys.executable, "-m", _MODULES[program]]

    @property
    def variables(self) -> dict[str, str]:
        return {**os.environ, **self.environment}


def original(programs: RealPrograms) -> Release:
    """Skips the test where the original is absent."""
    if missing := [name for name in _MODULES if not (programs.original / name).is_file()]:
        pytest.skip(f"the original's {missing[0]} is absent: put it into {programs.original}")
    return Release("original", programs.original)


def ours() -> Release:
    return Release("ours")


def last_release(folder: Path) -> Release:
    """With the dependencies of this environment; skips the test where the history has been cut off before it."""
    version, commit = LAST_RELEASE
    command = ["git", "-C", str(REPOSITORY), "archive", "--format=tar", commit, "src"]
    archive = subprocess.run(command, capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip(f"the history here has no commit {commit}, which is release {version}: git fetch --unshallow")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as sources:
        sources.extractall(folder, filter="data")
    return Release("last", environment={"PYTHONPATH": str(folder / "src")})
