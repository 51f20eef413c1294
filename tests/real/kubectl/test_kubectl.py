"""kubectl gives the same on the embedded API as on the real one: the same text, the same exit status, line by line.

The list is in the folder ``scenarios``. What differs there on purpose is marked with the reason.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.real.kubectl.scenario import read_scenarios
from tests.real.kubectl.two_clusters import TwoClusters, two_clusters
from tests.real.programs import RealPrograms

_SCENARIOS = read_scenarios()
pytestmark = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not on PATH; install a kubectl of version 1.30 or newer"
)


class Playing:
    """The scenarios are played before their tests ask for them: they mostly wait, so that two are played at a time."""

    def __init__(self, clusters: TwoClusters) -> None:
        self._clusters = clusters
        self._lanes = {cluster_wide: ThreadPoolExecutor(1) for cluster_wide in (True, False)}
        self._begun = {name: self._begin(name) for name in _SCENARIOS}

    def differences(self, name: str) -> list[str]:
        """Of a play that no test has asked for yet: a test that is run again has the scenario played again."""
        return (self._begun.pop(name, None) or self._begin(name)).result()

    def end(self) -> None:
        for lane in self._lanes.values():
            lane.shutdown(cancel_futures=True)

    def _begin(self, name: str) -> Future[list[str]]:
        scenario = _SCENARIOS[name]
        return self._lanes[scenario.cluster_wide].submit(self._clusters.differences, scenario)


@pytest.fixture(scope="module")
def playing(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playing]:
    with two_clusters(real_programs, tmp_path_factory.mktemp("clusters")) as clusters:
        playing = Playing(clusters)
        try:
            yield playing
        finally:
            playing.end()


@pytest.mark.parametrize("name", _SCENARIOS)
def test_kubectl(playing: Playing, name: str) -> None:
    differences = playing.differences(name)
    assert not differences, "\n\n".join(differences)
