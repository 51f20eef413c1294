"""Broken objects of each kind that a program watches, beside healthy ones: these are served, nothing is taken for a
fault of the program, and what cannot be decoded is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.fuzz.campaign import Program, campaign, watched
from tests.fuzz.descheduler_program import DeschedulerProgram
from tests.fuzz.koordlet_program import KoordletProgram
from tests.fuzz.manager_program import ManagerProgram
from tests.fuzz.readers import KINDS
from tests.fuzz.scheduler_program import SchedulerProgram


def _programs(folder: Path) -> dict[str, Callable[[], Program]]:
    return {
        "scheduler": SchedulerProgram,
        "manager": ManagerProgram,
        "descheduler": DeschedulerProgram,
        "koordlet": lambda: KoordletProgram(Path(mkdtemp(dir=folder))),
    }


@pytest.mark.parametrize("program", KINDS)
def test_each_kind_that_is_watched_is_broken(program: str, tmp_path: Path) -> None:
    assert watched(_programs(tmp_path)[program]()).keys() == KINDS[program]


@pytest.mark.parametrize(
    ("program", "plural"), [(program, each) for program in KINDS for each in sorted(KINDS[program])]
)
def test_healthy_objects_are_served(program: str, plural: str, seeds_of_objects: range, tmp_path: Path) -> None:
    campaign(_programs(tmp_path)[program], plural, seeds_of_objects)
