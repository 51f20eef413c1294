"""kubectl gives the same on the embedded API as on the real one: the same text, the same exit status, line by line.

The list is in the folder ``scenarios``. What differs there on purpose is marked with the reason.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.real.kubectl.scenario import read_scenarios
from tests.real.kubectl.two_clusters import TwoClusters, two_clusters
from tests.real.programs import RealPrograms

_SCENARIOS = read_scenarios()
pytestmark = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not on PATH; install a kubectl of version 1.30 or newer"
)


@pytest.fixture(scope="module")
def clusters(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoClusters]:
    with two_clusters(real_programs, tmp_path_factory.mktemp("clusters")) as clusters:
        yield clusters


@pytest.mark.parametrize("name", _SCENARIOS)
def test_kubectl(clusters: TwoClusters, name: str) -> None:
    differences = clusters.differences(_SCENARIOS[name])
    assert not differences, "\n\n".join(differences)
