"""``koord status``: what runs, where, and whether it is healthy."""

from __future__ import annotations

import argparse
import os
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from koordinator.base.clock import Clock, SystemClock
from koordinator.cli.cluster_record import ClusterRecord, ProgramRecord
from koordinator.cli.data_folder import default_data_folder
from koordinator.cli.explain_cluster import Cluster, ClusterOptions, find_cluster, folder_of_server
from koordinator.cli.explain_terminal import Terminal, print_whole, text_of
from koordinator.cli.output_forms import ALL, add_output, add_watch
from koordinator.cli.own_command import data_option, own_command
from koordinator.cli.query import Answer, Ask, run_query
from koordinator.cli.session import Session
from koordinator.cli.status_of_cluster import ClusterReport, collect_cluster, document_of_cluster
from koordinator.cli.status_report import HEALTHY, Counts, Health, Report, collect, document

# The status of a cluster on a terminal.


def print_status(report: Report, now: datetime, console: Console) -> None:
    """Write it, what matters first. Nothing is broken at the terminal's width but the table."""
    if report.pid is None:
        _print_absent(report, console)
        return
    if report.record is None:
        console.print(
            f"Process {report.pid} holds {escape(str(report.data))}, and has not yet written down what it runs.",
            soft_wrap=True,
            highlight=False,
        )
        return
    record = report.record
    console.print(_headline(report, record, now), soft_wrap=True, highlight=False)
    facts = {"data": str(report.data), "kubeconfig": record.kubeconfig, "in the cluster": _contents(report.counts)}
    for name, value in facts.items():
        console.print(f"  {name + ':':<15} {escape(value)}", soft_wrap=True, highlight=False)
    console.print()
    print_whole(console, _table(report, record, now))
    console.print()
    if checks := _checks(report):
        console.print(f"Well: {checks}", soft_wrap=True, highlight=False, markup=False)
    for program in record.programs:
        _print_errors(program, report.health[program.name], console)


def age(since: datetime, now: datetime) -> str:
    """As kubectl has it: the two largest units at most, the smaller one while it matters."""
    seconds = max(0, int((now - since).total_seconds()))
    for unit, size, smaller, smaller_size in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            rest = seconds % size // smaller_size
            return f"{seconds // size}{unit}" + (f"{rest}{smaller}" if rest and seconds < 10 * size else "")
    return f"{seconds}s"


def print_cluster(report: ClusterReport, now: datetime, console: Console) -> None:
    """Write the status of a cluster that runs elsewhere."""
    unwell = ", ".join(leader.program for leader in report.leaders if leader.error and leader.is_needed)
    state = f"[red]is not healthy[/red]: {unwell}" if unwell else "[green]is healthy[/green]"
    for line in (
        f"{escape(report.cluster.name)} {state}",
        f"  in the cluster: {escape(_contents(report.counts))}",
        f"  koordlet:       reports from {report.reporting} of {report.counts.nodes} nodes",
        "",
    ):
        console.print(line, soft_wrap=True, highlight=False)
    table = _borderless("program", "leads", "leader", "renewed")
    for leader in report.leaders:
        word = "[red]no[/red]" if leader.is_needed else "no"
        renewed = f"{age(leader.renewed, now)} ago" if leader.renewed is not None else ""
        table.add_row(leader.program, word if leader.error else "[green]yes[/green]", escape(leader.holder), renewed)
    print_whole(console, table)
    for leader in report.leaders:
        if leader.error:
            console.print(f"\n{leader.program}: {leader.error}", soft_wrap=True, highlight=False, markup=False)


def _borderless(*columns: str) -> Table:
    # Without borders it fits a terminal of 80 columns. A name that is cut off cannot be looked up.
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _print_absent(report: Report, console: Console) -> None:
    start = f"{own_command()} up{data_option(report.data)}"
    lines = [f"Nothing runs on {report.data}."]
    if report.was_killed:
        lines.append("What ran last was killed; the next start cleans up after it.")
    if (report.data / "api").exists():
        lines.append(f"The state of the last time is kept there. To go on with it: {start}")
    else:
        lines.append(f"To start a cluster: {start}")
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _headline(report: Report, record: ClusterRecord, now: datetime) -> str:
    unwell = [name for name, health in report.health.items() if health.error]
    if record.phase != "up":
        state = f"[yellow]is {record.phase}[/yellow]"
    elif report.exit_status == HEALTHY:
        state = "[green]is healthy[/green]"
    else:
        state = f"[red]is not healthy[/red]: {', '.join(unwell)}"
    since = f"{record.since.astimezone():%Y-%m-%d %H:%M:%S}"
    return f"{record.command} {state} (process {record.pid}, version {record.version}, since {since}, " \
           f"{age(record.since, now)})"  # fmt: skip


def _contents(counts: Counts | None) -> str:
    if counts is None:
        return "unknown, the API does not respond"
    phases = ", ".join(f"{count} {phase}" for phase, count in counts.pods.items())
    pods = sum(counts.pods.values())
    shown = f"{pods} pod{'' if pods == 1 else 's'}" + (f" ({phases})" if phases else "")
    return f"{counts.nodes} node{'' if counts.nodes == 1 else 's'} ({counts.ready_nodes} ready), {shown}"


def _table(report: Report, record: ClusterRecord, now: datetime) -> Table:
    table = _borderless("program", "health", "pid", "age", "restarts", "serves")
    for program in record.programs:
        table.add_row(
            program.name,
            "[red]not ok[/red]" if report.health[program.name].error else "[green]ok[/green]",
            str(program.pid or ""),
            age(program.since, now),
            str(program.restarts),
            "\n".join(f"{what} {url}" for what, url in program.serves.items()),
        )
    return table


def _checks(report: Report) -> str:
    """``apiserver (ping, storage)``: the parts that each program says are well."""
    well = {name: [check for check, ok in health.checks.items() if ok] for name, health in report.health.items()}
    return ", ".join(f"{name} ({', '.join(checks)})" for name, checks in well.items() if checks)


def _print_errors(program: ProgramRecord, health: Health, console: Console) -> None:
    lines = []
    if health.error:
        lines.append(f"{program.name}: {health.error} (log: {Path(program.log)})")
    elif program.last_error and program.last_error_at is not None:
        at = f"{program.last_error_at.astimezone():%H:%M:%S}"
        lines.append(f"{program.name}: was started again; the last one ended at {at} with {program.last_error}")
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


_SECONDS: Final = 5.0
"""How long a cluster that is not on this machine may take for a response."""
_DESCRIPTION = """\
Show the programs of the `koord up` or `koord demo --keep` of a data folder: where each program serves, whether it is
healthy, and how often it was restarted. The command checks every program and the API server when it runs. Of any other
cluster that KUBECONFIG, --kubeconfig or --context names, show which replicas lead and from how many nodes koordlet
reports.

exit status: 0 healthy; 1 something is not healthy, or is still starting; 3 nothing runs on this folder.
"""
_EPILOG = """\
examples:
  koord status                                 the koord up of this machine
  koord status --data /tmp/big                 one that keeps its state elsewhere
  koord status --context production            the cluster of a kubeconfig, through its API
  koord status -w                              again every two seconds, until Ctrl-C
  koord status -o json | jq '.programs[] | {name, healthy, restarts}'
  until koord status > /dev/null; do sleep 1; done
                                               wait until everything is healthy
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "status",
        help="say what runs, where, and whether it is healthy",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help=f"the folder of a koord up (default: that of KUBECONFIG's cluster, else {default_data_folder()})",
    )
    where.add_argument("--kubeconfig", type=Path, metavar="FILE", help="the cluster of this file (default: KUBECONFIG)")
    parser.add_argument("--context", default="", metavar="NAME", help="of the kubeconfig (default: the current one)")
    add_output(parser, *ALL, names="the programs")
    add_watch(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Query and print."""
    return run_query(options, lambda terminal: _question(options, SystemClock(), terminal))


def _question(options: argparse.Namespace, clock: Clock, terminal: Terminal) -> Ask:
    cluster, folder = _where(options)

    async def ask(session: Session) -> Answer:
        console = terminal.console()
        if cluster is not None:
            elsewhere = await collect_cluster(cluster, clock)
            print_cluster(elsewhere, clock.now(), console)
            names = [leader.program for leader in elsewhere.leaders]
            return Answer(document_of_cluster(elsewhere), partial(text_of, console), names, elsewhere.exit_status)
        report = await collect(folder, clock)
        print_status(report, clock.now(), console)
        names = [program.name for program in report.record.programs] if report.record is not None else []
        return Answer(document(report), partial(text_of, console), names, report.exit_status)

    return ask


def _where(options: argparse.Namespace) -> tuple[Cluster | None, Path]:
    """The cluster, or None for that of the folder. Without a word about either, KUBECONFIG counts: a local cluster is
    found without it, and ``~/.kube/config`` may well be of another."""
    folder: Path = (options.data or default_data_folder()).expanduser().absolute()
    named = options.kubeconfig is not None or options.context or os.environ.get("KUBECONFIG")
    if options.data is not None or not named:
        return None, folder
    cluster = find_cluster(ClusterOptions(options.kubeconfig, options.context, None, _SECONDS, os.environ))
    if cluster is None:
        return None, folder
    local = folder_of_server(cluster, options.kubeconfig, os.environ)
    return (None, local) if local is not None else (cluster, folder)
