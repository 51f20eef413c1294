"""Tests against real programs: where those are found, and a control plane that all tests of a session share."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.real.control_plane import ControlPlane

_HERE = Path(__file__).resolve().parent
_REPOSITORY = _HERE.parent.parent
_HOW_TO_GET = (
    "the real programs are absent: download the Kubernetes v1.35 server binaries and etcd into DIR/kubernetes, put the "
    "Go original's programs into DIR/original, and set KOORDINATOR_REAL_BIN=DIR"
)


@dataclass(frozen=True, slots=True)
class RealPrograms:
    """Folders of executables."""

    kubernetes: Path
    original: Path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session", autouse=True)
def real_programs() -> RealPrograms:
    """The programs, or a skip of every test below this folder with the way to get them."""
    root = _find_programs()
    if root is None or not (root / "kubernetes/kube-apiserver").is_file():
        pytest.skip(_HOW_TO_GET)
    return RealPrograms(kubernetes=root / "kubernetes", original=root / "original")


@pytest.fixture(scope="session")
def real_control_plane(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running control plane that tests share: they leave it running, and break only ones of their own."""
    plane = ControlPlane(real_programs.kubernetes, tmp_path_factory.mktemp("control-plane"))
    plane.start()
    yield plane
    plane.stop()


@pytest.fixture(scope="session")
def real_cluster(real_control_plane: ControlPlane) -> Path:
    """The kubeconfig of a running real API server."""
    return real_control_plane.kubeconfig


def _find_programs() -> Path | None:
    named = os.environ.get("KOORDINATOR_REAL_BIN")
    if named:
        return Path(named)
    shared = Path(os.environ.get("KOORDINATOR_SHARED") or _REPOSITORY.parent / "shared")
    unpack = shared / "tools/unpack.sh"
    if not unpack.is_file():
        return None
    unpacked = subprocess.run([str(unpack)], check=True, capture_output=True, text=True)
    return Path(unpacked.stdout.strip())
