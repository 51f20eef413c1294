"""Records what the programs cost now. Usage: python -m tests.costs.record [PROGRAM ...]"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.costs.measure import PROGRAMS, measured
from tests.costs.recorded_costs import PYTHON, read_costs, write_costs


def main(arguments: Sequence[str]) -> int:
    for program in arguments or PROGRAMS:
        before, now = read_costs(program, PYTHON), measured(program)
        write_costs(program, now)
        for name, cost in now.items():
            was = f" (was {before[name].calls:.1f})" if name in before else ""
            print(f"{program}: {name}: {cost.calls:.1f} calls{was}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
