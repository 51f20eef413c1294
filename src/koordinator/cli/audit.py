"""``koord audit``: what the programs have modified, as koord-manager has kept it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from rich.table import Table

from koordinator.api.audit_answer import KeptRecord
from koordinator.api.codec import to_document
from koordinator.api.modification import ACTIONS, FAILED, Modification
from koordinator.api.timestamps import format_time
from koordinator.base.clock import Clock, SystemClock
from koordinator.base.durations import DurationError, parse_duration
from koordinator.cli.audit_source import coverage_sentences, read_records
from koordinator.cli.explain import add_sources, sources_of
from koordinator.cli.explain_failure import UsageError
from koordinator.cli.explain_terminal import Terminal, escape, print_whole, text_of
from koordinator.cli.output_forms import (
    ALL,
    JSON,
    JSONL,
    NAME,
    WIDE,
    YAML,
    add_namespaces,
    add_output,
    add_watch,
    rendered,
)
from koordinator.cli.query import Answer, Ask, run_query
from koordinator.cli.session import Session

_DESCRIPTION = f"""\
List what koord-scheduler, koord-manager, koordlet and koord-descheduler have modified: when, which program, what, on
which node and why. koord-manager keeps the records beyond the life of the Events and of the objects that they are
about, for as long as its flags --audit-max-age and --audit-max-megabytes say. What it may lack is said on standard
error. The oldest record comes first.

actions:
{"".join(f"  {name:12}{meaning}{chr(10)}" for name, meaning in ACTIONS.items())}"""
_EPILOG = """\
examples:
  koord audit                                  everything of the last 24 hours
  koord audit --pod shop/web-7 --since 168h    who evicted or moved that pod, though it is long gone
  koord audit --node node-3 --since 2h -o wide
  koord audit --cause LowNodeLoad --action evicted
  koord audit -n shop --program koordlet -w    and again, each time that there is more, until Ctrl-C
  koord audit --since 2026-01-31T00:00:00Z --until 2026-02-01T00:00:00Z -o jsonl > january-31.jsonl

exit status: as that of koord explain
"""
_DEFAULT_SINCE: Final = "24h"
_LATE: Final = 600.0
"""A record may come so many seconds after the modification: --watch looks for it for so long."""
_COLUMNS: Final = ("at", "program", "action", "object", "node", "why")
_WIDE: Final = ("by", "cause", "target", "count", "numbers")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "audit",
        help="list what was evicted, moved, resized or suppressed, when, by whom and why",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_namespaces(parser, "objects")
    parser.add_argument("--pod", metavar="[NAMESPACE/]NAME", default="", help="records about this pod")
    parser.add_argument("--node", metavar="NAME", default="", help="of this node")
    parser.add_argument("--cause", metavar="CODE", default="", help="with this cause, such as LowNodeLoad")
    parser.add_argument("--action", choices=tuple(ACTIONS), default="", help="of this action")
    parser.add_argument("--program", metavar="NAME", default="", help="by this program, such as koordlet")
    when = "a time such as 2026-01-31T12:00:00Z, or how long ago, such as 2h30m"
    parser.add_argument("--since", default=_DEFAULT_SINCE, metavar="TIME", help=f"{when} (default: %(default)s)")
    parser.add_argument("--until", default="", metavar="TIME", help=f"{when} (default: now)")
    add_output(parser, *ALL, JSONL, names="the objects")
    add_watch(parser)
    add_sources(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Query and print."""
    return run_query(options, lambda terminal: question(options, SystemClock(), terminal))


def question(options: argparse.Namespace, clock: Clock, terminal: Terminal) -> Ask:
    """What is asked; with ``--watch``, only what is new is asked for and printed again."""
    manager, given = sources_of(options).manager, _parameters(options, clock)
    known: dict[str, KeptRecord] = {}
    told = ""

    async def ask(session: Session) -> Answer:
        nonlocal told
        query = given if not known else {**given, "since": _late(given["since"], clock)}
        answer = await read_records(session, manager, query)
        new = [each for each in reversed(answer.records) if each.event not in known]
        known.update((each.event, each) for each in new)
        shown = sorted(known.values(), key=lambda each: _time(each.record)) if known else []
        sentences = " ".join(
            sentence[0].upper() + sentence[1:] for sentence in coverage_sentences(answer.coverage, given)
        )
        note, told = ("" if sentences == told else sentences), sentences
        document = {"kind": "List", "items": [_item(each) for each in shown]}
        changes = None
        if options.watch and options.output not in (JSON, YAML):
            changes = _forms(options.output, new, terminal, with_header=len(new) == len(known))
        names = list(dict.fromkeys(_name(each.record) for each in shown))
        text = partial(_text, shown, options.output, terminal)
        return Answer(document, text, names, note=note, changes=changes)

    return ask


def _parameters(options: argparse.Namespace, clock: Clock) -> dict[str, str]:
    """Raises UsageError."""
    namespace, slash, name = options.pod.rpartition("/")
    if options.pod and not (slash or options.namespace):
        namespace = "default"
    given = {
        "pod": f"{namespace or options.namespace}/{name}" if options.pod else "",
        "namespace": "" if options.pod else options.namespace,
        "node": options.node,
        "cause": options.cause,
        "action": options.action,
        "program": options.program,
    }
    times = {name: _moment(f"--{name}", getattr(options, name), clock) for name in ("since", "until")}
    if times["until"] and times["until"] < times["since"]:
        raise UsageError(f"--until: {options.until!r} is before --since")
    return {name: value for name, value in (given | times).items() if value}


def _moment(flag: str, text: str, clock: Clock) -> str:
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            moment = clock.now() - parse_duration(text)
        except (DurationError, OverflowError) as error:
            raise UsageError(
                f"{flag}: {text!r} is neither a time such as 2026-01-31T12:00:00Z nor a duration such as 2h30m"
            ) from error
    return format_time(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


def _late(since: str, clock: Clock) -> str:
    """From when on --watch asks again."""
    late = datetime.fromtimestamp(clock.now().timestamp() - _LATE, UTC)
    return max(since, format_time(late))


def _time(record: Modification) -> datetime:
    return record.time or datetime.min.replace(tzinfo=UTC)


def _item(kept: KeptRecord) -> dict[str, Any]:
    return {**to_document(kept.record), "event": kept.event}


def _name(record: Modification) -> str:
    about = record.object
    return f"{about.kind.lower()}/{f'{about.namespace}/' if about.namespace else ''}{about.name}"


def _forms(form: str, records: Sequence[KeptRecord], terminal: Terminal, *, with_header: bool) -> str:
    """What --watch prints of new records."""
    if form == NAME:
        return "".join(f"{_name(each.record)}\n" for each in records)
    if not records:
        return ""
    document = {"items": [_item(each) for each in records]}
    return rendered(form, document, lambda: _text(records, form, terminal, with_header), terminal.encoding)


def _text(records: Sequence[KeptRecord], form: str, terminal: Terminal, with_header: bool = True) -> str:
    if not records:
        return "No records found.\n"
    console = terminal.console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=with_header)
    columns = (*_COLUMNS, *_WIDE) if form == WIDE else _COLUMNS
    for column in columns:
        table.add_column(column, overflow="fold")
    for kept in records:
        row = terminal.readable(row_of(kept.record))
        table.add_row(*(escape(row[column]) for column in columns))
    print_whole(console, table)
    return text_of(console)


def row_of(record: Modification) -> dict[str, str]:
    """The cells of a record, by column."""
    action = f"{record.action} ({FAILED})" if record.outcome == FAILED else record.action
    return {
        "at": format_time(record.time) if record.time is not None else "",
        "program": record.program,
        "action": action,
        "object": _name(record),
        "node": record.node,
        "why": record.cause.text or record.cause.code,
        "by": record.actor,
        "cause": record.cause.code,
        "target": record.target,
        "count": str(record.count),
        "numbers": ", ".join(f"{name}={value:g}" for name, value in record.numbers.items()),
    }
