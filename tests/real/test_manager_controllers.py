"""koord-manager's controllers beside those of the original: the same objects, the same flags, the same responses.

Each program has a real API server of its own, into which the same nodes, reports, pods, topologies, devices and quota
profiles are written; both go through the same configurations. All that they write has to be the same, but for the
differences that a case names.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.real.overcommit.comparison import differing, unexpected
from tests.real.overcommit.differences import INTENDED, ZONES_UP_TO_DATE, ZONES_ZEROED
from tests.real.overcommit.node_cases import node_cases
from tests.real.overcommit.quota_cases import quota_cases, quota_nodes
from tests.real.overcommit.recording import Recording, record_both
from tests.real.overcommit.steps import BROKEN, FIRST, OFF, SELDOM_WRITTEN, STEPS
from tests.real.programs import RealPrograms

NODES, QUOTAS = node_cases(), quota_cases()
AFTERWARDS = (
    "policy-usage",
    "group-tight",
    "group-invalid",
    "normal-both",
    "amplify-both",
    "slo-web",
    "slo-hosts",
    "slo-bandwidth",
    "collect-by-group",
    "collect-by-annotation",
)
"""Nodes that are looked at after each change of the configuration too."""
INTENDED_AFTERWARDS = {
    (OFF, "normal-both"): (ZONES_ZEROED,),
    (BROKEN, "differs-much"): (ZONES_UP_TO_DATE,),
}


@dataclass(frozen=True, slots=True)
class Case:
    step: str
    subject: str
    intended: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.step}-{self.subject}"


def cases() -> list[Case]:
    found = [Case(FIRST, case.name, case.intended) for case in NODES]
    found += [Case(FIRST, case.name) for case in quota_nodes()]
    found += [Case(FIRST, case.name, case.intended) for case in QUOTAS]
    later = [(step.name, name) for step in STEPS[1:] for name in AFTERWARDS]
    later += [(step, case.name) for step in (FIRST, BROKEN) for case in SELDOM_WRITTEN]
    later += [(step.name, case.name) for step in STEPS for case in step.arrivals if case not in SELDOM_WRITTEN]
    return found + [Case(*each, INTENDED_AFTERWARDS.get(each, ())) for each in later]


@pytest.fixture(scope="module")
def recordings(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, Recording]:
    """Ours and the original's."""
    return record_both(real_programs, tmp_path_factory.mktemp("managers"), [*NODES, *quota_nodes()], QUOTAS)


@pytest.mark.parametrize("case", cases(), ids=str)
def test_both_write_the_same(case: Case, recordings: tuple[Recording, Recording]) -> None:
    ours, theirs = (recording.responses[case.step][case.subject] for recording in recordings)
    wrong = unexpected(differing(ours, theirs), case.intended)
    assert not wrong, "\n".join(wrong)


def test_every_intended_difference_has_a_case() -> None:
    assert {name for case in cases() for name in case.intended} == INTENDED.keys()


def test_nothing_is_written_when_nothing_has_changed(recordings: tuple[Recording, Recording]) -> None:
    ours, theirs = (recording.steady_writes for recording in recordings)
    assert not ours
    # The original writes every node again after a while, changed or not: without that, there is no difference to name.
    assert theirs
