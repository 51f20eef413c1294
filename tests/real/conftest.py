"""Tests against real programs: where those are found, and a control plane that all tests of a session share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.control_plane import ControlPlane
from tests.real.programs import HOW_TO_GET, RealPrograms, find_real_programs

_HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session", autouse=True)
def real_programs() -> RealPrograms:
    """The programs, or a skip of every test below this folder with the way to get them.

    Where KOORDINATOR_REAL_REQUIRED is set, as in CI, the run fails instead.
    """
    programs = find_real_programs()
    if programs is None:
        if os.environ.get("KOORDINATOR_REAL_REQUIRED"):
            pytest.exit(HOW_TO_GET, returncode=1)
        pytest.skip(HOW_TO_GET)
    return programs


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


@pytest.fixture
def plane(real_programs: RealPrograms, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of the test's own: to be broken, or since its nodes and volumes are all that there may be."""
    cluster = ControlPlane(real_programs.kubernetes, tmp_path / "cluster")
    cluster.start()
    yield cluster
    cluster.stop()
