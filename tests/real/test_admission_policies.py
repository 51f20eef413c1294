"""Admission policies on the real kube-apiserver: it still says what the embedded API goes by."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.admission_policies.cases import BINDINGS, CASES, POLICIES
from tests.cluster.admission_policies.talking import RECORDED, Speaker


@pytest.fixture(scope="module")
def speaker(real_cluster: Path) -> Speaker:
    return Speaker(real_cluster)


@pytest.mark.parametrize("name", POLICIES)
def test_policy(speaker: Speaker, name: str) -> None:
    assert speaker.policy(POLICIES[name]) == RECORDED["policies"][name]


@pytest.mark.parametrize("name", BINDINGS)
def test_binding(speaker: Speaker, name: str) -> None:
    assert speaker.binding(BINDINGS[name]) == RECORDED["bindings"][name]


@pytest.mark.parametrize("name", CASES)
def test_case(speaker: Speaker, name: str) -> None:
    assert speaker.case(name, CASES[name]) == RECORDED["cases"][name]
