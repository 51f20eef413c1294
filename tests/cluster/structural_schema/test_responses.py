"""Definitions and custom resources fare on the embedded API as they did on the real kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.embedded_thread import embedded_server
from tests.cluster.structural_schema.talking import RECORDED, Speaker
from tests.real.schema_cases import DEFINITIONS, SPECS, STATUS_DEFINITIONS, TALKS, Talk


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speaker]:
    with embedded_server(tmp_path_factory.mktemp("embedded")) as kubeconfig:
        yield Speaker(kubeconfig)


@pytest.mark.parametrize("name", [*DEFINITIONS, *STATUS_DEFINITIONS])
def test_definition(speaker: Speaker, name: str) -> None:
    assert speaker.decision(name) == RECORDED["definitions"][name]


@pytest.mark.parametrize("name", SPECS)
def test_rest_of_a_definition(speaker: Speaker, name: str) -> None:
    assert speaker.decision_on_spec(name) == RECORDED["specs"][name]


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.name)
def test_talk(speaker: Speaker, talk: Talk) -> None:
    responses = speaker.talk(talk)
    reported = [(request, response) for request, response in zip(talk.requests, responses, strict=True)]
    assert reported == list(zip(talk.requests, RECORDED["talks"][talk.name], strict=True))
