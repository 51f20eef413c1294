"""Records what the programs cost now, and says what they cost before."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.costs.measure import PROGRAMS, measured
from tests.costs.recorded_costs import PYTHON, read_costs, write_costs


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.costs.record", description=__doc__)
    parser.add_argument("program", nargs="*", help=f"one of {', '.join(PROGRAMS)}; all of them unless some are named")
    programs: list[str] = parser.parse_args(arguments).program
    if unknown := [name for name in programs if name not in PROGRAMS]:
        parser.error(f"{unknown[0]} is not measured; choose among {', '.join(PROGRAMS)}")
    for program in programs or PROGRAMS:
        before, now = read_costs(program, PYTHON), measured(program)
        write_costs(program, now)
        for name, cost in now.items():
            was = f" (was {before[name].calls:.1f})" if name in before else ""
            print(f"{program}: {name}: {cost.calls:.1f} calls{was}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
