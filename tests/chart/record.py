"""Record what Helm makes of the chart: ``python -m tests.chart.record HELM``, with the path of the program."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.chart.renderings import CASES, rendered_by, write


def main() -> None:
    (helm,) = sys.argv[1:]
    for case, values in CASES.items():
        write(case, rendered_by(Path(helm), values))


if __name__ == "__main__":
    main()
