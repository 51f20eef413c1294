"""The embedded API refuses what kube-apiserver refuses: valid objects with one change, sent to both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.embedded_thread import embedded_server
from tests.real.api_fuzz.fuzzer import OPTIONS, Difference, Server, differences, report
from tests.real.api_fuzz.known import is_known
from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms

pytestmark = pytest.mark.real
CHANGES = 5000
SEED = 1


@pytest.fixture(scope="module")
def found(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Difference]]:
    plane = ControlPlane(real_programs.kubernetes, tmp_path_factory.mktemp("fuzzed"))
    folder = tmp_path_factory.mktemp("embedded")
    try:
        with (
            embedded_server(folder, OPTIONS) as kubeconfig,
            Server(plane.start()) as real,
            Server(kubeconfig) as ours,
        ):
            yield differences(real, ours, CHANGES, SEED)
    finally:
        plane.stop()


def test_no_difference_is_new(found: list[Difference]) -> None:
    new = [difference for difference in found if not is_known(difference)]
    assert not new, report(new)


def test_few_differences_are_left(found: list[Difference]) -> None:
    """What is listed must not hide that a listed kind gets worse."""
    assert len(found) <= CHANGES // 200
