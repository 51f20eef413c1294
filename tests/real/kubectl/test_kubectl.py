"""kubectl gives the same on the embedded API as on the real one: the same text, the same exit status, line by line.

The list is in the folder ``scenarios``. What differs there on purpose is marked with the reason.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.real.kubectl.scenario import read_scenarios
from tests.real.kubectl.two_clusters import two_clusters
from tests.real.programs import RealPrograms

_SCENARIOS = read_scenarios()
pytestmark = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not on PATH; install a kubectl of version 1.30 or newer"
)
Playing = dict[str, Future[list[str]]]


@pytest.fixture(scope="module")
def playing(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playing]:
    """The differences of each scenario. They mostly wait, so that two are played at the same time."""
    with two_clusters(real_programs, tmp_path_factory.mktemp("clusters")) as clusters:
        lanes = {cluster_wide: ThreadPoolExecutor(1) for cluster_wide in (True, False)}
        try:
            yield {
                name: lanes[scenario.cluster_wide].submit(clusters.differences, scenario)
                for name, scenario in _SCENARIOS.items()
            }
        finally:
            for lane in lanes.values():
                lane.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", _SCENARIOS)
def test_kubectl(playing: Playing, name: str) -> None:
    differences = playing[name].result()
    assert not differences, "\n\n".join(differences)
