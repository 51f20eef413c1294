"""Policies, bindings and requests fare on the embedded API as they did on the real kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.admission_policies.cases import BINDINGS, CASES, POLICIES
from tests.cluster.admission_policies.talking import RECORDED, Speaker
from tests.cluster.embedded_thread import embedded_server


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speaker]:
    with embedded_server(tmp_path_factory.mktemp("embedded")) as kubeconfig:
        yield Speaker(kubeconfig)


@pytest.mark.parametrize("name", POLICIES)
def test_policy(speaker: Speaker, name: str) -> None:
    assert speaker.policy(POLICIES[name]) == RECORDED["policies"][name]


@pytest.mark.parametrize("name", BINDINGS)
def test_binding(speaker: Speaker, name: str) -> None:
    assert speaker.binding(BINDINGS[name]) == RECORDED["bindings"][name]


_SLOW = ("expensive-together",)
"""Seconds, until the budget is used up."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in _SLOW else n for n in CASES])
def test_case(speaker: Speaker, name: str) -> None:
    assert speaker.case(name, CASES[name]) == RECORDED["cases"][name]
