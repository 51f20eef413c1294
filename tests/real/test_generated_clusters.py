"""koord-manager beside the original on clusters made by chance: what nobody thought of as a case.

The seeds are fixed, so that a run can be repeated. More of them are tried by hand, each for itself:
``KOORDINATOR_SEEDS=7,8 KOORDINATOR_GENERATED=150x4 pytest tests/real/test_generated_clusters.py`` (nodes x ConfigMaps).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

import pytest

from tests.real.overcommit.comparison import differing, unintended
from tests.real.overcommit.generated.allowances import allowances
from tests.real.overcommit.generated.cluster import GeneratedCluster, generated_cluster
from tests.real.overcommit.generated.readings import PossibleConfigurations
from tests.real.overcommit.node_case import Document, NodeCase
from tests.real.overcommit.recording import Recording, record_both
from tests.real.programs import RealPrograms

_SEEDS = tuple(int(text) for text in os.environ.get("KOORDINATOR_SEEDS", "1").split(","))
_NODES, _STEPS = (int(text) for text in os.environ.get("KOORDINATOR_GENERATED", "50x3").split("x"))
_LEAST_SHARE = 0.3
"""Of nodes that offer something: without them there would be little to compare."""


@dataclass(frozen=True, slots=True)
class Compared:
    cluster: GeneratedCluster
    ours: Recording
    theirs: Recording


@cache
def _cluster(seed: int) -> GeneratedCluster:
    return generated_cluster(seed, _NODES, _STEPS)


@cache
def _configurations(seed: int, step: int) -> PossibleConfigurations:
    """What can be in force after a step."""
    return PossibleConfigurations([each.configuration for each in _cluster(seed).steps[: step + 1]])


@pytest.fixture(scope="module", params=_SEEDS, ids=lambda seed: f"seed-{seed}")
def compared(
    request: pytest.FixtureRequest, real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Compared:
    cluster = _cluster(request.param)
    folder = tmp_path_factory.mktemp("generated")
    return Compared(cluster, *record_both(real_programs, folder, cluster.nodes, steps=cluster.steps))


@pytest.mark.parametrize("node", range(_NODES))
@pytest.mark.parametrize("step", range(_STEPS))
def test_both_write_the_same(compared: Compared, step: int, node: int) -> None:
    cluster = compared.cluster
    case, name = cluster.nodes[node], cluster.steps[step].name
    found = differing(*(each.responses[name][case.name] for each in (compared.ours, compared.theirs)))
    allowed = allowances(case, _configurations(cluster.seed, step), *_annotations(compared, step, case))
    wrong = unintended(found, allowed)
    assert not wrong, "\n".join(wrong)


def _annotations(compared: Compared, step: int, case: NodeCase) -> tuple[Document, Document]:
    """Of a node of the original, before and after a step."""
    names = [each.name for each in compared.cluster.steps]
    after = [compared.theirs.responses[name][case.name]["annotations"] for name in names]
    return after[step - 1] if step else case.node["metadata"]["annotations"], after[step]


def test_most_nodes_offer_something(compared: Compared) -> None:
    responses = [response["allocatable"] for step in compared.theirs.responses.values() for response in step.values()]
    offering = [each for each in responses if each.get("kubernetes.io/batch-cpu", "0") != "0"]
    assert len(offering) >= _LEAST_SHARE * len(responses)
