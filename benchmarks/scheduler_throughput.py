"""Pods per second, CPU per pod and memory of koord-scheduler, the Go original and a client that only binds.

Each runs alone against a freshly started real kube-apiserver and etcd with the same nodes, node metrics and pods. All
pods exist before scheduling begins; the rate is taken between 10 % and 90 % bound, as a watcher outside sees it. CPU is
that of the scheduler's process from just before the pods are created until the last event is written; the figure with
start-up counts everything since the process began. One JSON line a case goes to stdout; the table to stderr.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.cases import CASES, Case
from benchmarks.contenders import ROOT, Contender
from benchmarks.figures import Figures
from benchmarks.measurement import Setting, measure
from benchmarks.placements import Faults
from benchmarks.scheduler_report import CaseResult, markdown
from benchmarks.stored_clusters import StoredClusters
from koordinator.base.errors import KoordinatorError
from tests.real.control_plane import ControlPlaneError
from tests.real.programs import HOW_TO_GET, find_real_programs

_MUCH_LOAD: Final = 0.2


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = [contender.value for contender in Contender if contender is not Contender.EARLIER]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES), help="a case; repeatable; default: all")
    parser.add_argument("--only", action="append", choices=names, help="a contender; repeatable; default: all")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each; the medians are reported (default 1)")
    parser.add_argument("--profile", choices=("plain", "chart"), default="plain", help="the plugins: those that a case "
                        "needs beside Kubernetes' own and LoadAwareScheduling (default), or all that the chart "
                        "enables")  # fmt: skip
    parser.add_argument("--against", metavar="COMMIT", default="", help="run koord-scheduler as of this commit, too, "
                        "in turn, on the libraries of this one")  # fmt: skip
    parser.add_argument("--against-profile", choices=("plain", "chart"), default="plain", help="the plugins of that "
                        "commit, which may not know all of the chart's (default plain)")  # fmt: skip
    parser.add_argument("--folder", type=Path, help="work below this folder (default: the system's)")
    options = parser.parse_args(arguments)
    if options.repeat < 1:
        parser.error("--repeat must be at least 1")
    return options


async def run_case(case: Case, contenders: Sequence[Contender], repeat: int, setting: Setting) -> CaseResult:
    runs: dict[Contender, list[Figures]] = {contender: [] for contender in contenders}
    faults: dict[Contender, list[Faults]] = {contender: [] for contender in contenders}
    for _ in range(repeat):
        for contender in contenders:
            started = time.monotonic()
            figures, found = await measure(contender, case, setting)
            runs[contender].append(figures)
            faults[contender].append(found)
            _say(case, contender, figures, time.monotonic() - started)
    return CaseResult(case, runs, faults)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when ours was right in every case, 1 when it was not, a case failed or the programs are missing."""
    options = parse(arguments)
    programs = find_real_programs()
    contenders = [
        each
        for each in Contender
        if (options.against if each is Contender.EARLIER else not options.only or each.value in options.only)
    ]
    if programs is None or not all(contender.is_present(programs) for contender in contenders):
        print(f"scheduler_throughput: {HOW_TO_GET}", file=sys.stderr)
        return 1
    results, failed = [], False
    with (
        tempfile.TemporaryDirectory(prefix="koordinator-benchmark-", dir=options.folder) as folder,
        _checkout(options.against, Path(folder) / "earlier") as checkout,
    ):
        clusters = StoredClusters(programs.kubernetes, Path(folder))
        is_whole, is_whole_earlier = options.profile == "chart", options.against_profile == "chart"
        setting = Setting(programs, clusters, Path(folder), is_whole, checkout, is_whole_earlier)
        for name in options.case or CASES:
            try:
                result = uvloop.run(run_case(CASES[name], contenders, options.repeat, setting))
            except (KoordinatorError, ControlPlaneError, OSError) as error:
                print(f"scheduler_throughput: {name}: {error}", file=sys.stderr)
                failed = True
            else:
                print(
                    json.dumps(
                        {**result.document(), "profile": options.profile, "against_profile": options.against_profile}
                    ),
                    flush=True,
                )
                results.append(result)
    print(f"\n{markdown(results)}", file=sys.stderr)
    return int(failed or not all(result.ours_is_right for result in results))


@contextmanager
def _checkout(commit: str, folder: Path) -> Iterator[Path | None]:
    """The commit's files; None without one."""
    if not commit:
        yield None
        return
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(folder), commit], cwd=ROOT, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(folder)], cwd=ROOT, check=True)


def _say(case: Case, contender: Contender, figures: Figures, seconds: float) -> None:
    busy = f"; others kept {figures.other_cores:.1f} cores busy" if figures.other_cores > _MUCH_LOAD else ""
    text = f"{case.name} {contender.value}: {figures.pods_per_second:.0f} pods/s ({seconds:.0f} s in all{busy})"
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
