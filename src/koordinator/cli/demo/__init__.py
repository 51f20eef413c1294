"""``koord demo``: a scripted day on 20 simulated nodes, and whether what we claim of it is true."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from koordinator.base.clock import Clock, SystemClock
from koordinator.cli.cluster_record import read_record
from koordinator.cli.data_folder import DataFolderInUse
from koordinator.cli.demo import day as script
from koordinator.cli.demo.claim import Claim
from koordinator.cli.demo.claims import claims
from koordinator.cli.demo.folder import demo_folder, kept_folder
from koordinator.cli.demo.play import make_cluster, play, running
from koordinator.cli.demo.report import print_report, save_picture
from koordinator.cli.demo.waiting import NeverHappened
from koordinator.cli.interruption import Interrupted, until_interrupted
from koordinator.cli.local_cluster.running import LocalCluster, clear_the_way
from koordinator.cli.own_command import data_option, own_command
from koordinator.cli.page.state_folder import StateFolder

_DESCRIPTION = f"""\
Play a day on {script.NODES} simulated nodes: online services first, then batch pods that use
what the services leave idle.
The API server and the programs are real; the nodes and the usage of their pods are simulated.
The day takes {script.DAY_SECONDS:.0f} seconds. Starting the programs takes 10 to 30 seconds more. On a busy
machine, simulated time waits for the programs, and all takes longer.
The exit status is 1 if one of the claims of the report does not hold.
"""
_EPILOG = """\
examples:
  koord demo                                   play, report, and leave nothing behind
  koord demo --keep                            keep the cluster running afterwards, until Ctrl-C
  koord demo --data /tmp/day                   stop the cluster, but keep its logs and its state
  koord demo --svg report.svg                  write the report as a picture, too
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "demo",
        help="play a scripted day on 20 simulated nodes and report what came of it",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulated usage (default: 0)")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running at the end, until Ctrl-C")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help=f"keep logs and state in this folder (default: a temporary one; with --keep {kept_folder()})",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also write the report to this file, as a picture")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Play the day, report it, and check the claims."""
    chosen = options.data.expanduser().absolute() if options.data else kept_folder() if options.keep else None
    console = Console(stderr=True)

    def say(text: str) -> None:
        console.print(f"koord demo: {text}", highlight=False, markup=False, soft_wrap=True)

    try:
        with demo_folder(chosen) as data:
            cluster = make_cluster(data, options.seed, SystemClock(), say, with_page=options.keep)
            clear_the_way(cluster.options, cluster.names, say)
            demonstration = _Demonstration(options, cluster, console, say)
            with asyncio.Runner() as runner:
                return runner.run(demonstration.run())
    except DataFolderInUse as error:
        if chosen is None or not _runs_already(chosen):
            raise
        print(f"koord demo: {error}\n\nIt can be used as it is:\n\n{_things_to_do(chosen)}", file=sys.stderr)
        return 1


class _Demonstration:
    """One run of the command."""

    def __init__(
        self, options: argparse.Namespace, cluster: LocalCluster, console: Console, say: Callable[[str], None]
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._console = console
        self._say = say
        self._checked: list[Claim] | None = None

    async def run(self) -> int:
        """1 when a claim does not hold; as shells have it when a signal came before the report."""
        try:
            await until_interrupted(
                self._play(SystemClock()), kill=self._cluster.supervisor.kill, on_interrupt=self._stopping
            )
        except Interrupted as interrupted:
            if self._checked is None:
                return interrupted.exit_status
            print(_what_next(self._cluster.options.data), flush=True)
        return 1 if any(not claim.holds for claim in self._checked or ()) else 0

    async def _play(self, clock: Clock) -> None:
        began = clock.monotonic()
        self._say(
            f"the day takes {script.DAY_SECONDS:.0f} seconds, and longer on a busy machine, since it waits for the "
            "programs; starting them before it takes 10 to 30"
        )
        async with running(self._cluster, self._say) as client:
            started = clock.monotonic()
            try:
                day = await play(self._cluster, client, clock, self._console)
            except NeverHappened as error:
                self._checked = [Claim(error.expected, False, error.expected, error.seen, error.advice)]
                print(_stuck(error), flush=True)
            else:
                lasted = clock.monotonic() - started
                self._checked = checked = claims(day)
                print_report(day, checked)
                total = clock.monotonic() - began
                print(f"\nPlayed in {total:.0f} s, of which the day took {lasted:.0f}.", flush=True)
                if self._options.svg is not None:
                    save_picture(day, checked, self._options.svg)
                if failed := [claim for claim in checked if not claim.holds]:
                    self._say(f"{len(failed)} of {len(checked)} claims do not hold")
            if not all(claim.holds for claim in self._checked):
                self._keep_logs()
            if self._options.keep:
                await self._show_page()
                things = _things_to_do(self._cluster.options.data)
                print(f"\nThe cluster runs on until Ctrl-C. Meanwhile, in another terminal:\n\n{things}", flush=True)
                await self._cluster.watch()
        print(f"\n{_what_next(self._cluster.options.data if self._options.data else None)}", flush=True)

    async def _show_page(self) -> None:
        """Its address is for one browser; ``koord page`` gives another."""
        if link := await StateFolder(self._cluster.options.data).link():
            print(f"\nThe day in a browser: {link}", flush=True)

    def _keep_logs(self) -> None:
        """Whoever looks for the reason needs them, and the folder of the cluster is deleted."""
        if self._options.keep or self._options.data:
            return
        folder = Path(tempfile.mkdtemp(prefix="koord-demo-logs-"))
        shutil.copytree(self._cluster.options.data / "logs", folder, dirs_exist_ok=True)
        self._say(f"the logs of the programs are in {shlex.quote(str(folder))}")

    def _stopping(self) -> None:
        self._say("stopping; Ctrl-C once more kills everything at once")


def _stuck(error: NeverHappened) -> str:
    lines = [
        f"\nThe day stopped at {error.when}, since what it waited for did not happen.",
        f"  expected: {error.expected}",
        f"  seen:     {error.seen}",
        f"  try:      {'; '.join(error.advice)}",
        f"            {own_command()} demo --keep, which leaves the cluster for you to look around in",
    ]
    return "\n".join(lines)


def _runs_already(data: Path) -> bool:
    """Whether what holds the folder is a demonstration that has come to its end."""
    record = read_record(data)
    return record is not None and record.command == "koord demo" and record.phase == "up"


def _things_to_do(data: Path) -> str:
    """Commands that work while the cluster of the demonstration runs."""
    koord, folder = own_command(), data_option(data)
    commands = [
        f"export KUBECONFIG={shlex.quote(str(data / 'kubeconfig'))}",
        "kubectl get pods -o wide",
        f"{koord} explain pod {script.TOO_LARGE}{folder}",
        f"{koord} explain node {script.FAULTY}{folder}",
        f"{koord} explain rebalance{folder}",
        f"{koord} status{folder}",
        f"{koord} page{folder}",
    ]
    return "\n".join(f"  {command}" for command in commands)


def _what_next(kept: Path | None) -> str:
    """What can be done when the cluster is gone."""
    koord = own_command()
    lines = []
    if kept is not None:
        lines.append(f"Logs and state are in {shlex.quote(str(kept))}, until the next koord demo there.")
    lines += [
        "Next:",
        f"  {koord} demo --keep    the same day, and the cluster stays for you to look around in, also in a browser",
        f"  {koord} up             a cluster of your own",
    ]
    return "\n".join(lines)
