"""``koord get``: what there is, without knowing a name; each name is one that ``koord explain`` takes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from rich.table import Table

from koordinator.api.kinds import PODS
from koordinator.base.clock import Clock, SystemClock
from koordinator.cli.explain import add_sources, sources_of
from koordinator.cli.explain_failure import ExplainError, UsageError
from koordinator.cli.explain_object import read_from
from koordinator.cli.explain_source import fetch
from koordinator.cli.explain_target import KINDS
from koordinator.cli.explain_terminal import Terminal, escape, print_whole, text_of
from koordinator.cli.explanation import Sources
from koordinator.cli.listing import LISTINGS, Document, Listing, Row, rows_of
from koordinator.cli.output_forms import (
    ALL,
    JSON,
    NAME,
    WIDE,
    YAML,
    add_namespaces,
    add_output,
    add_selector,
    add_watch,
)
from koordinator.cli.query import Answer, Ask, run_query
from koordinator.cli.session import Session

_DESCRIPTION = """\
List what there is in a cluster: the pods that wait for a node, all pods, elastic quotas, gangs, Reservations, nodes
or PodMigrationJobs. The name in each row is one that `koord explain` takes.
"""
_EPILOG = """\
examples:
  koord get pending                            the pods of all namespaces that wait for a node, and why
  koord get pending -n shop -o wide            of one namespace, with the whole message
  koord get quotas                             what each quota has, uses and may use now
  koord get gangs -w                           and again, each time that one changes, until Ctrl-C
  koord get pods -A -l app=web                 those with a label
  koord get reservations -o yaml
  koord get nodes -o name

exit status: as that of koord explain
"""
GANGS_PATH: Final = "/apis/v1/plugins/Coscheduling/gangs"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "get",
        help="list pods that wait, quotas, gangs, reservations, nodes or migrations",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", type=_list_name, choices=tuple(LISTINGS), help="what to list")
    add_namespaces(parser, "pods or gangs")
    add_selector(parser, "those")
    add_output(parser, *ALL)
    add_watch(parser)
    add_sources(parser)
    parser.set_defaults(run=run)


def _list_name(text: str) -> str:
    """``quota``, ``eq`` and whatever else ``koord explain`` takes for a kind is the name of its list, too."""
    kind = KINDS.get(text.lower())
    return next((name for name, listing in reversed(list(LISTINGS.items())) if listing.explained_as == kind), text)


def run(options: argparse.Namespace) -> int:
    """Query and print."""
    return run_query(options, lambda terminal: question(options, SystemClock(), terminal))


def question(options: argparse.Namespace, clock: Clock, terminal: Terminal) -> Ask:
    """What is asked; with ``--watch``, rows are printed again when they have changed."""
    sources, listing = sources_of(options), LISTINGS[options.what]
    before: dict[str, Row] = {}

    async def ask(session: Session) -> Answer:
        documents = await documents_of(options, sources, session)
        rows = rows_of(listing, documents, clock.now())
        changes = None
        if options.watch and options.output not in (JSON, YAML):
            changes = _changes(before, {row["name"]: row for row in rows}, _columns(listing, options.output))
        text = partial(_text, options, rows, terminal)
        names = [row["name"] for row in rows]
        return Answer({"apiVersion": "v1", "kind": "List", "items": list(documents)}, text, names, changes=changes)

    return ask


async def documents_of(options: argparse.Namespace, sources: Sources, session: Session) -> Sequence[Document]:
    """Those of the list. Raises ExplainError."""
    listing, namespace, selector = LISTINGS[options.what], options.namespace, options.selector
    if listing.is_of_scheduler:
        if selector:
            raise UsageError(f"--selector: {options.what} are listed by koord-scheduler, which knows no labels of them")
        found = await fetch(session, sources.scheduler, GANGS_PATH)
        if not isinstance(found, dict):
            raise ExplainError(f"what was queried lists no {options.what}; is that a koord-scheduler?")
        return [each for each in found.values() if not namespace or each["name"].startswith(f"{namespace}/")]
    if sources.cluster is None:
        raise ExplainError(f"{options.what} are read from the API: name a cluster with --kubeconfig or --data")
    async with read_from(session, sources.cluster) as reader:
        within = namespace if listing.kind is PODS else ""
        found = await reader.every(listing.kind, within, listing.field_selector, selector)
    # The items of a list do not say what they are; whoever takes them up has to know.
    says = {"apiVersion": listing.kind.api_version, "kind": listing.kind.name}
    return [says | dict(each) for each in found if listing.belongs(each)]


def _changes(before: dict[str, Row], now: Mapping[str, Row], columns: Sequence[str]) -> str:
    """A line for each row that has changed or is gone; ``before`` becomes ``now``."""
    changed = [row for name, row in now.items() if _facts(row) != _facts(before.get(name, {}))]
    lines = ["  ".join([row["name"], *(f"{column}={row[column]}" for column in columns)]) for row in changed]
    lines += [f"{name}  gone" for name in before if name not in now]
    before.clear()
    before.update(now)
    return "".join(f"{line}\n" for line in lines)


def _text(options: argparse.Namespace, rows: Sequence[Row], terminal: Terminal) -> str:
    if not rows:
        where = f" in {options.namespace} namespace" if options.namespace else ""
        return f"No resources found{where}.\n"
    return _table(LISTINGS[options.what], terminal.readable(rows), options.output, terminal)


def _table(listing: Listing, rows: Sequence[Row], form: str, terminal: Terminal) -> str:
    console = terminal.console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns = ("name", *_columns(listing, form))
    for column in columns:
        table.add_column(listing.explained_as if column == "name" else column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(row[column]) for column in columns))
    print_whole(console, table)
    return text_of(console)


def _columns(listing: Listing, form: str) -> Sequence[str]:
    if form == NAME:
        return ()
    return (*listing.columns, *listing.wide) if form == WIDE else listing.columns


def _facts(row: Row) -> dict[str, Any]:
    """All but what changes by itself."""
    return {key: value for key, value in row.items() if key != "age"}
