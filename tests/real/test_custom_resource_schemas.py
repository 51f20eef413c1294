"""Custom resources and their schemas on the real kube-apiserver: it still says what the embedded API goes by."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.structural_schema.talking import RECORDED, Speaker
from tests.real.schema_cases import DEFINITIONS, SPECS, STATUS_DEFINITIONS, TALKS, Talk


@pytest.fixture(scope="module")
def speaker(real_cluster: Path) -> Speaker:
    return Speaker(real_cluster)


@pytest.mark.parametrize("name", [*DEFINITIONS, *STATUS_DEFINITIONS])
def test_definition(speaker: Speaker, name: str) -> None:
    assert speaker.decision(name) == RECORDED["definitions"][name]


@pytest.mark.parametrize("name", SPECS)
def test_rest_of_a_definition(speaker: Speaker, name: str) -> None:
    assert speaker.decision_on_spec(name) == RECORDED["specs"][name]


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.name)
def test_talk(speaker: Speaker, talk: Talk) -> None:
    assert speaker.talk(talk) == RECORDED["talks"][talk.name]
