"""Record what Helm makes of the chart: ``python -m tests.chart.record HELM``, with the path of the program."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.chart.renderings import record


def main() -> None:
    (helm,) = sys.argv[1:]
    record(Path(helm))


if __name__ == "__main__":
    main()
