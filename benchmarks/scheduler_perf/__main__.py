"""Kubernetes' scheduler_perf workloads with koord-scheduler and the Go original, on a real kube-apiserver and etcd.

Prints one JSON line for each workload and scheduler; that of ours carries the ratios to the original when both ran.
Without --test-case and --workload a selection runs (see docs/scheduler-perf.md).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvloop

from benchmarks.contenders import Contender
from benchmarks.scheduler_perf.executor import Created
from benchmarks.scheduler_perf.locations import HOW_TO_GET, scheduler_perf_folder
from benchmarks.scheduler_perf.measurement import Totals, ratios, totals
from benchmarks.scheduler_perf.parameters import unsupported
from benchmarks.scheduler_perf.run import Conditions, run_workload
from benchmarks.scheduler_perf.selection import select
from benchmarks.scheduler_perf.test_cases import Found, find_workloads
from koordinator.base.errors import ConfigurationError, KoordinatorError
from tests.real.control_plane import ControlPlaneError
from tests.real.programs import HOW_TO_GET as HOW_TO_GET_PROGRAMS
from tests.real.programs import RealPrograms, find_real_programs

_SCHEDULERS = (Contender.ORIGINAL, Contender.OURS)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scheduler_perf",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, help="a performance-config.yaml or a folder above some (default: Go's)")
    parser.add_argument("--test-case", action="append", metavar="NAME", help="run it; repeatable")
    parser.add_argument("--workload", action="append", metavar="NAME", help="run only those of this name; repeatable")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply all numbers of objects, 0 to 1 (default 1)")
    parser.add_argument("--scheduler", default="original,ours", help="ours, original or both, with a comma between")
    parser.add_argument(
        "--created",
        choices=[created.value for created in Created],
        default=Created.BEFORE.value,
        help="create measured pods before they are scheduled (default), or during that, as scheduler_perf does",
    )
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds to wait for the pods of an operation")
    parser.add_argument("--list", action="store_true", help="say what there is and run nothing")
    options = parser.parse_args(arguments)
    if not 0 < options.scale <= 1:
        parser.error("--scale must be above 0 and at most 1")
    names = [contender.value for contender in _SCHEDULERS]
    wanted = options.scheduler.split(",")
    if not set(wanted) <= set(names):
        parser.error(f"--scheduler takes {' or '.join(names)}, or both with a comma between")
    options.contenders = [contender for contender in _SCHEDULERS if contender.value in wanted]
    options.conditions = Conditions(options.scale, options.timeout, Created(options.created))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all that ran was right, 1 when something was not or could not be run."""
    options = parse(arguments)
    folder = options.config or scheduler_perf_folder()
    if folder is None:
        return _complain(HOW_TO_GET)
    try:
        found = find_workloads(folder)
        if options.list:
            return _list(found)
        chosen = select(found, options.test_case, options.workload)
    except ConfigurationError as error:
        return _complain(str(error))
    programs = find_real_programs()
    if programs is None:
        return _complain(HOW_TO_GET_PROGRAMS)
    right = True
    for workload in chosen:
        for line in _lines(workload, options, programs):
            right = right and not line.get("error") and not line["faults"]
            print(json.dumps(line), flush=True)
    return 0 if right else 1


def _lines(found: Found, options: argparse.Namespace, programs: RealPrograms) -> Iterator[dict[str, object]]:
    seen: dict[Contender, Totals | None] = {}
    for contender in options.contenders:
        line: dict[str, object] = {
            "benchmark": "scheduler_perf",
            "test_case": found.case.name,
            "workload": found.workload.name,
            "scale": options.scale,
            "created": options.created,
            "scheduler": contender.value,
            "threshold": found.workload.threshold,
        }
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="koordinator-scheduler-perf-") as folder:
            work = run_workload(found, contender, options.conditions, programs, Path(folder))
            try:
                outcome = uvloop.run(work)
            except (KoordinatorError, ControlPlaneError) as error:
                yield {**line, "error": str(error), "faults": []}
                continue
        line |= outcome.document()
        line["wall_seconds"] = round(time.monotonic() - started, 1)
        seen[contender] = totals(outcome.measurements, outcome.peak_bytes)
        ours, original = seen.get(Contender.OURS), seen.get(Contender.ORIGINAL)
        if ours is not None and original is not None:
            line["ratio"] = ratios(ours, original)
        yield line


def _list(found: Sequence[Found]) -> int:
    for one in found:
        missing = unsupported(one.case)
        note = f"  (not supported: {', '.join(missing)})" if missing else ""
        params = " ".join(f"{name}={value}" for name, value in one.workload.params.items())
        print(f"{one.case.name}  {one.workload.name}  {params}{note}")
    return 0


def _complain(text: str) -> int:
    print(f"scheduler_perf: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
