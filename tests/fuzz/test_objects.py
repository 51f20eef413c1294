"""Broken objects of each kind that a program watches, beside healthy ones: these are served, nothing is taken for a
fault of the program, and what cannot be decoded is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from koordinator.api.kinds import Kind
from tests.fuzz.campaign import Program, campaign
from tests.fuzz.descheduler_program import DeschedulerProgram
from tests.fuzz.koordlet_program import KoordletProgram
from tests.fuzz.manager_program import ManagerProgram
from tests.fuzz.readers import KINDS
from tests.fuzz.scheduler_program import SchedulerProgram

_PROGRAMS: Final[dict[str, Callable[[], Program]]] = {
    "scheduler": SchedulerProgram,
    "manager": ManagerProgram,
    "descheduler": DeschedulerProgram,
    "koordlet": KoordletProgram,
}


def _watched(program: str) -> dict[str, Kind[Any]]:
    return {informer.kind.plural: informer.kind for informer in _PROGRAMS[program]().informers}


@pytest.mark.parametrize("program", KINDS)
def test_each_kind_that_is_watched_is_broken(program: str) -> None:
    assert _watched(program).keys() == KINDS[program]


@pytest.mark.parametrize(
    ("program", "plural"), [(program, each) for program in KINDS for each in sorted(KINDS[program])]
)
def test_healthy_objects_are_served(program: str, plural: str, seeds: range) -> None:
    campaign(_PROGRAMS[program], _watched(program)[plural], seeds)
