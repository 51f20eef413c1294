"""Counts what a program of the project costs, and prints it as JSON. The tests start it as a process of its own.

In a process of its own nothing is counted of other tests, nor made by them, and the order of sets of strings is the
same in every run. Usage: PYTHONHASHSEED=0 python -m tests.costs.measure PROGRAM
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.costs.figures import Cost

PROGRAMS: Final = ("scheduler", "koordlet", "manager", "admission")
_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_SEED: Final = "0"


def measured(program: str) -> dict[str, Cost]:
    """By shape, from a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name if __name__ == "__main__" else __name__, program],
        cwd=_REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": _SEED},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: Cost.from_document(document) for name, document in json.loads(done.stdout.splitlines()[-1]).items()}


def _here(program: str) -> dict[str, Cost]:
    # Each program in a process of its own loads nothing of the others.
    if program == "scheduler":
        from tests.costs import scheduler_costs

        return {name: scheduler_costs.cost(shape) for name, shape in scheduler_costs.SHAPES.items()}
    if program == "koordlet":
        from tests.costs import koordlet_costs

        return {name: koordlet_costs.cost(shape) for name, shape in koordlet_costs.SHAPES.items()}
    if program == "manager":
        from tests.costs import manager_costs

        return {name: manager_costs.cost(pods) for name, pods in manager_costs.SHAPES.items()}
    from tests.costs import admission_costs

    return {name: admission_costs.cost(shape) for name, shape in admission_costs.SHAPES.items()}


def main(arguments: Sequence[str]) -> int:
    (program,) = arguments
    print(json.dumps({name: cost.document() for name, cost in _here(program).items()}))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
