"""``koord get``: what there is, without knowing a name; each name is one that ``koord explain`` takes."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from rich.table import Table

from koordinator.api.kinds import PODS
from koordinator.base.clock import Clock, SystemClock
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.cli import interruption
from koordinator.cli.explain import add_sources, sources_of
from koordinator.cli.explain_failure import NOT_REACHED, ExplainError, UsageError
from koordinator.cli.explain_object import read_from
from koordinator.cli.explain_source import fetch
from koordinator.cli.explain_target import KINDS
from koordinator.cli.explain_terminal import Terminal, ended, escape, output, print_whole, say, text_of, write
from koordinator.cli.explanation import Sources
from koordinator.cli.listing import LISTINGS, Document, Listing, Row, rows_of
from koordinator.cli.output_forms import add_output, rendered
from koordinator.cli.session import Session, open_session
from koordinator.model.label_selector import SelectorError, parse_selector

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
_GANGS: Final = "/apis/v1/plugins/Coscheduling/gangs"
_WATCH_SECONDS: Final = 2.0
Sleep = Callable[[float], Awaitable[None]]


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
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-n", "--namespace", default="", metavar="NAME", help="of pods or gangs (default: all)")
    where.add_argument("-A", "--all-namespaces", action="store_true", help="the default, as one types it for kubectl")
    parser.add_argument(
        "-l",
        "--selector",
        type=_selector,
        default="",
        metavar="LABELS",
        help="those with these labels alone: app=web,tier!=cache",
    )
    add_output(parser, "text", "wide", "name", "json", "yaml")
    parser.add_argument("-w", "--watch", action="store_true", help="go on: print each row again when it changes")
    add_sources(parser)
    parser.set_defaults(run=run)


def _list_name(text: str) -> str:
    """``quota``, ``eq`` and whatever else ``koord explain`` takes for a kind is the name of its list, too."""
    kind = KINDS.get(text.lower())
    return next((name for name, listing in reversed(list(LISTINGS.items())) if listing.explained_as == kind), text)


def _selector(text: str) -> str:
    try:
        parse_selector(text)
    except SelectorError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
    return text


def run(options: argparse.Namespace) -> int:
    """Query and print. Each failure is one sentence on standard error."""
    stream, terminal = output()
    if options.watch and options.output not in ("text", "wide", "name"):
        return say(f"--watch prints rows one by one: -o {options.output} does not go with it", UsageError.status)
    try:
        sources = sources_of(options)
        clock = SystemClock()
        if options.watch:
            interruption.run(watch(options, sources, clock, lambda text: write(text, stream, terminal), asyncio.sleep))
        documents = interruption.run(_list_once(options, sources))
        text = rendered(options.output, *_forms(options, documents, clock, terminal), terminal.encoding)
        write(text, stream, terminal)
    except ExplainError as error:
        return say(str(error), error.status)
    except ConfigurationError as error:
        return say(str(error), UsageError.status)
    except KoordinatorError as error:
        return say(str(error), NOT_REACHED)
    except (KeyboardInterrupt, Exception) as error:
        return ended(error, stream)
    return 0


async def _list_once(options: argparse.Namespace, sources: Sources) -> Sequence[Document]:
    async with open_session() as session:
        return await documents_of(options, sources, session)


async def documents_of(options: argparse.Namespace, sources: Sources, session: Session) -> Sequence[Document]:
    """Those of the list. Raises ExplainError."""
    listing, namespace, selector = LISTINGS[options.what], options.namespace, options.selector
    if listing.is_of_scheduler:
        if selector:
            raise UsageError(f"--selector: {options.what} are listed by koord-scheduler, which knows no labels of them")
        found = await fetch(session, sources.scheduler, _GANGS)
        if not isinstance(found, dict):
            raise ExplainError(f"what was queried lists no {options.what}; is that a koord-scheduler?")
        return [each for each in found.values() if not namespace or each["name"].startswith(f"{namespace}/")]
    if sources.cluster is None:
        raise ExplainError(f"{options.what} are read from the API: name a cluster with --kubeconfig or --data")
    async with read_from(session, sources.cluster) as reader:
        within = namespace if listing.kind is PODS else ""
        found = await reader.every(listing.kind, within, listing.field_selector, selector)
    return [each for each in found if listing.belongs(each)]


async def watch(
    options: argparse.Namespace, sources: Sources, clock: Clock, show: Callable[[str], None], sleep: Sleep
) -> None:
    """Print the rows, and from then on those that have changed or are gone, until cancelled."""
    listing, before = LISTINGS[options.what], dict[str, Row]()
    columns = _columns(listing, options.output)
    async with open_session() as session:
        while True:
            documents = await documents_of(options, sources, session)
            now = {row["name"]: row for row in rows_of(listing, documents, clock.now())}
            changed = [row for name, row in now.items() if _facts(row) != _facts(before.get(name, {}))]
            lines = ["  ".join([row["name"], *(f"{column}={row[column]}" for column in columns)]) for row in changed]
            lines += [f"{name}  gone" for name in before if name not in now]
            if lines:
                show("".join(f"{line}\n" for line in lines))
            before = now
            await sleep(_WATCH_SECONDS)


def _forms(
    options: argparse.Namespace, documents: Sequence[Document], clock: Clock, terminal: Terminal
) -> tuple[Document, Callable[[], str]]:
    """The list for programs, and what writes it for people."""
    listing = LISTINGS[options.what]

    def text() -> str:
        rows = rows_of(listing, documents, clock.now())
        if options.output == "name":
            return "".join(f"{row['name']}\n" for row in rows)
        if not rows:
            where = f" in {options.namespace} namespace" if options.namespace else ""
            return f"No resources found{where}.\n"
        return _table(listing, terminal.readable(rows), options.output, terminal)

    return {"kind": "List", "items": list(documents)}, text


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
    if form == "name":
        return ()
    return (*listing.columns, *listing.wide) if form == "wide" else listing.columns


def _facts(row: Row) -> dict[str, Any]:
    """All but what changes by itself."""
    return {key: value for key, value in row.items() if key != "age"}
