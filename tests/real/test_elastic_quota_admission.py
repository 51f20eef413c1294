"""The same questions about quotas to the original koord-manager and to our handlers, one after the other.

The original runs as a program against a real API server that holds a few quotas and pods; ours runs in this process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.manager.webhook.quota_accounts import quota_summary
from tests.real.programs import RealPrograms
from tests.real.quota_cases import PASSES_WITH_THE_ORIGINAL, PASSES_WITH_US, STEPS, Step
from tests.real.quota_programs import Programs, both_programs, decision, filled, quota_cluster


@pytest.fixture(scope="module")
def programs(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    folder = tmp_path_factory.mktemp("quota-admission")
    with (
        quota_cluster(real_programs, folder / "control-plane") as plane,
        both_programs(real_programs, plane, folder / "original") as both,
    ):
        yield both


def test_every_question_is_answered_as_the_original_does(programs: Programs) -> None:
    ours: dict[str, Any] = {}
    original: dict[str, Any] = {}
    for step in STEPS:
        our_response, original_response = programs.send(step)
        for responses, response in ((ours, our_response), (original, original_response)):
            shown = filled(step, response) if step.operation == "CREATE" else None
            responses[step.name] = (decision(response, words=step.same_words), shown)
    assert ours == original


def test_the_page_shows_what_the_original_shows(programs: Programs) -> None:
    original = json.loads(programs.original.send("/elasticQuota"))
    ours = quota_summary(programs.bench.quotas.tree())
    assert ours["quotaInfoMap"] == original["quotaInfoMap"]
    # The original forgets the children of the root when the root is created, and keeps parents that nobody names.
    children = {name: found for name, found in ours["quotaHierarchyInfo"].items() if name != ROOT_QUOTA}
    assert children == {name: sorted(original["quotaHierarchyInfo"][name]) for name in children}


@pytest.mark.parametrize("step", PASSES_WITH_US, ids=lambda step: str(step.name))
def test_what_passes_that_the_original_refuses(programs: Programs, step: Step) -> None:
    ours, original = programs.send(step)
    assert (ours["allowed"], original["allowed"]) == (True, False)


@pytest.mark.parametrize("step", PASSES_WITH_THE_ORIGINAL, ids=lambda step: str(step.name))
def test_what_the_original_lets_pass_is_refused(programs: Programs, step: Step) -> None:
    ours, original = programs.send(step)
    assert (ours["allowed"], original["allowed"]) == (False, True)
