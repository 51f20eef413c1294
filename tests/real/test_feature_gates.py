"""The recorded feature gates are those that the original's koord-scheduler has."""

from __future__ import annotations

import subprocess

from tests.real.programs import RealPrograms
from tests.scheduler.original_gates import IN_HELP, gates_of


def test_the_recorded_gates_are_those_that_the_original_lists(real_programs: RealPrograms) -> None:
    command = [str(real_programs.original / "koord-scheduler"), "--help"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert gates_of(ended.stdout + ended.stderr) == IN_HELP
