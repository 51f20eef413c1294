"""``koord recommend``: what workloads request, what is recommended, what that saves, and ``--apply`` to have it so."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from rich.table import Table

from koordinator.api.kinds import RECOMMENDATIONS
from koordinator.base.clock import SystemClock
from koordinator.base.spelling import did_you_mean
from koordinator.cli.explain import add_cluster, needed_cluster
from koordinator.cli.explain_cluster import Cluster, seconds
from koordinator.cli.explain_failure import NotFoundError, UsageError, explain_error
from koordinator.cli.explain_source import SECONDS
from koordinator.cli.explain_terminal import Terminal, escape, print_whole, say, text_of
from koordinator.cli.output_forms import ALL, TEXT, WIDE, add_namespaces, add_output, add_selector, add_watch
from koordinator.cli.query import Answer, Ask, run_query
from koordinator.cli.savings import Saving, Sum, savings_of, sums_of
from koordinator.cli.session import Session
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import KubeError
from koordinator.manager.recommender.observed_pods import OBSERVED_PODS
from koordinator.model.label_selector import parse_selector

_DESCRIPTION = """\
Show what the pods of each Recommendation request, what is recommended for them, and what that would save, in sums of
all pods. --apply resizes the pods in place; with --template the template of their workload is changed instead, which
rolls it out anew.

A Recommendation is not used while there is less than a day of history, and when it is older than a day; the column
note says so. The annotation recommendation-policy of a Recommendation can have it applied by itself (updateMode).
"""
_EPILOG = """\
examples:
  koord recommend                               of all namespaces
  koord recommend deployment/web -n shop        one workload (also: shop/web, the name of its Recommendation)
  koord recommend -o wide                       with the amounts for each container
  koord recommend shop/web --apply --dry-run    what would be done, and what would stay as it is
  koord recommend shop/web --apply              after a question; --yes answers it
  koord recommend shop/web --apply --template   by a rollout, so that later pods have it, too

exit status: as that of koord explain; --apply: 1 if a pod or a workload is not as recommended
"""
_MIB: Final = 1 << 20


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "recommend",
        help="show what workloads should request, and what that saves; --apply it",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "workload",
        nargs="?",
        default="",
        metavar="WORKLOAD",
        help="KIND/NAME, NAMESPACE/NAME or NAME of a workload or a Recommendation",
    )
    add_namespaces(parser, "workloads")
    add_selector(parser, "Recommendations")
    add_output(parser, *ALL, names="Recommendations")
    add_watch(parser)
    applying = parser.add_argument_group("acting on it")
    applying.add_argument("--apply", action="store_true", help="resize the pods in place")
    applying.add_argument("--template", action="store_true", help="change the template of the workload instead")
    applying.add_argument("--restart", action="store_true", help="also pods of which a container is restarted for it")
    applying.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    applying.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--request-timeout", type=seconds, default=SECONDS, metavar="SECONDS", help=argparse.SUPPRESS)
    add_cluster(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Query and print, or apply."""
    if options.apply and (options.watch or options.output != TEXT):
        return say("--apply prints lines: -o and -w are about what is recommended", UsageError.status)
    if options.apply:
        # Loaded for those who apply it.
        from koordinator.cli.recommend_apply import run_apply

        return run_apply(options)
    return run_query(options, lambda terminal: _question(options, terminal))


def _question(options: argparse.Namespace, terminal: Terminal) -> Ask:
    if options.template or options.restart or options.dry_run or options.yes:
        raise UsageError("--template, --restart, --dry-run and --yes are about --apply")
    cluster, reading = needed_cluster(options)

    async def ask(session: Session) -> Answer:
        try:
            found = await read_savings(options, await session.client(reading), cluster)
        except KubeError as error:
            raise explain_error(error, cluster.name, reading.timeout_seconds) from error
        document = {"items": [each.document() for each in found]}
        return Answer(document, partial(_text, options, found, terminal), [each.name for each in found])

    return ask


async def read_savings(options: argparse.Namespace, client: KubeClient, cluster: Cluster) -> list[Saving]:
    """Of the Recommendations that are meant. Raises ExplainError and KubeError."""
    namespace, name = options.namespace, options.workload
    if name.count("/") == 1 and not _kind_of(name):
        namespace, _, name = name.partition("/")
    # All of them, whatever is selected: one that is not may come first for a pod.
    sources, pods = await asyncio.gather(client.list(RECOMMENDATIONS, namespace), client.list(OBSERVED_PODS, namespace))
    selected = parse_selector(options.selector)
    found = [
        each
        for each in savings_of(sources.items, pods.items, SystemClock().now())
        if selected.matches(each.recommended.source.metadata.labels)
    ]
    if not name:
        return found
    meant = [each for each in found if name in _names_of(each)]
    if not meant:
        known = sorted({text for each in found for text in _names_of(each)})
        where = f" in the namespace {namespace}" if namespace else ""
        raise NotFoundError(
            f"there is no Recommendation for {name}{where} in {cluster.name}{did_you_mean(name, known)}"
        )
    return meant


def _kind_of(text: str) -> str:
    """The kind of KIND/NAME; empty where the first part is a namespace."""
    kind = text.partition("/")[0].lower()
    return next((each for each, short in _KINDS.items() if kind in (each, *short)), "")


_KINDS: Final = {
    "deployment": ("deploy",),
    "statefulset": ("sts",),
    "daemonset": ("ds",),
    "replicaset": ("rs",),
    "job": (),
    "cronjob": ("cj",),
    "replicationcontroller": ("rc",),
}


def _names_of(saving: Saving) -> set[str]:
    """All that it may be called by on the command line."""
    metadata, target = saving.recommended.source.metadata, saving.recommended.source.spec.target
    if target.workload is None:
        return {metadata.name}
    kind, name = target.workload.kind.lower(), target.workload.name
    return {metadata.name, name, *(f"{each}/{name}" for each in (kind, *_KINDS.get(kind, ())))}


def _text(options: argparse.Namespace, found: Sequence[Saving], terminal: Terminal) -> str:
    if not found:
        return "No Recommendations found: docs/manager.md says how a workload gets one.\n"
    is_wide = options.output == WIDE
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("recommendation", "target"):
        table.add_column(column, overflow="fold")
    for column in ("pods", *(f"{name} {part}" for name in ("cpu", "memory") for part in ("now", "then", "saved"))):
        table.add_column(column, justify="right")
    for column in ("days", "mode", "note", *(("containers",) if is_wide else ())):
        table.add_column(column, overflow="fold")
    for each in found:
        days = f"{each.confidence:.1f}" if each.confidence is not None else ""
        cells = [each.name, each.target, str(len(each.pods)), *_amounts(each.cpu, each.memory), days]
        cells += [each.rules.update_mode, each.unusable, *([_containers(each)] if is_wide else [])]
        table.add_row(*(escape(terminal.readable(cell)) for cell in cells))
    sums = sums_of(found)
    usable = [each for each in found if not each.unusable]
    if len(usable) > 1:
        pods = str(sum(len(each.pods) for each in usable))
        rest = [""] * (4 if is_wide else 3)
        table.add_row("all that may be used", "", pods, *_amounts(sums["cpu"], sums["memory"]), *rest)
    console = terminal.console()
    print_whole(console, table)
    return text_of(console)


def _amounts(cpu: Sum, memory: Sum) -> list[str]:
    return [
        *(f"{amount}m" for amount in (cpu.requested, cpu.recommended, cpu.saved)),
        *(f"{int(amount / _MIB)}Mi" for amount in (memory.requested, memory.recommended, memory.saved)),
    ]


def _containers(saving: Saving) -> str:
    texts = []
    for name, amounts in sorted(saving.recommended.containers.items()):
        parts = [f"{amounts['cpu']}m cpu"] if "cpu" in amounts else []
        parts += [f"{amounts['memory'] // _MIB}Mi memory"] if "memory" in amounts else []
        texts.append(f"{name}: {', '.join(parts)}")
    return "; ".join(texts)
