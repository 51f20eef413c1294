"""``koord top``: what each class of pods has been given, uses and could use, and what suppression takes from it."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from rich.table import Table

from koordinator.api.kinds import NODE_METRICS, NODES, PODS
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.base.spelling import did_you_mean
from koordinator.cli.explain import add_cluster, needed_cluster
from koordinator.cli.explain_cluster import Cluster, seconds
from koordinator.cli.explain_failure import explain_error
from koordinator.cli.explain_source import SECONDS
from koordinator.cli.explain_terminal import Terminal, escape, print_whole, text_of
from koordinator.cli.output_forms import ALL, add_namespaces, add_output, add_selector, add_watch
from koordinator.cli.query import Answer, Ask, run_query
from koordinator.cli.session import Session
from koordinator.cli.usage import (
    Amounts,
    ClassUsage,
    NodeUsage,
    PodUsage,
    reading_of,
    usage_of_cluster,
    usage_of_nodes,
    usage_of_pods,
)
from koordinator.kube.errors import KubeError

_WHAT: Final = {"classes": "classes", "class": "classes", "nodes": "nodes", "node": "nodes", "no": "nodes"} | {
    "pods": "pods",
    "pod": "pods",
    "po": "pods",
}
_DESCRIPTION = """\
Show what the pods of each class (koord-prod, koord-mid, koord-batch, koord-free) have been given, what they use, and
what is there for them: of the whole cluster, of each node, or of each pod.

  allocated     the sum of the requests
  measured      the usage that koordlet has reported last
  reclaimable   of mid and batch: the capacity that nodes offer to the class; of prod: what koordlet predicts that its
                pods leave of their requests
  suppressed    what best-effort pods lack of their requested CPUs while koordlet holds them down
"""
_EPILOG = """\
examples:
  koord top                            the classes, all nodes together
  koord top nodes                      the classes on each node, and the node itself
  koord top pods -n shop               each pod of one namespace
  koord top nodes -w                   again every two seconds, until Ctrl-C
  koord top nodes -o json

exit status: as that of koord explain
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "top",
        help="show what each class of pods has, uses, and could use, by node or pod",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="?", type=_what, default="classes", help="classes (the default), nodes or pods")
    add_namespaces(parser, "pods")
    add_selector(parser, "of pods those")
    add_output(parser, *ALL)
    add_watch(parser)
    parser.add_argument("--request-timeout", type=seconds, default=SECONDS, metavar="SECONDS", help=argparse.SUPPRESS)
    add_cluster(parser)
    parser.set_defaults(run=run)


def _what(text: str) -> str:
    try:
        return _WHAT[text.lower()]
    except KeyError:
        hint = did_you_mean(text, _WHAT)
        raise argparse.ArgumentTypeError(f"{text!r}: classes, nodes or pods are shown{hint}") from None


def run(options: argparse.Namespace) -> int:
    """Query and print."""
    return run_query(options, lambda terminal: _question(options, terminal))


def _question(options: argparse.Namespace, terminal: Terminal) -> Ask:
    cluster, _ = needed_cluster(options)

    async def ask(session: Session) -> Answer:
        rows = await rows_of(options, cluster, session)
        names = [row.key if isinstance(row, PodUsage) else row.name for row in rows]
        return Answer([asdict(row) for row in rows], partial(_text, options, rows, terminal), names)

    return ask


async def rows_of(
    options: argparse.Namespace, cluster: Cluster, session: Session
) -> Sequence[ClassUsage] | Sequence[NodeUsage] | Sequence[PodUsage]:
    """What is shown. Raises ExplainError."""
    assert cluster.client is not None
    try:
        client = await session.client(cluster.client)
        nodes, pods, metrics = await asyncio.gather(
            client.list(NODES),
            client.list(PODS, options.namespace, label_selector=options.selector),
            client.list(NODE_METRICS),
        )
    except KubeError as error:
        raise explain_error(error, cluster.name, cluster.client.timeout_seconds) from error
    by_node = {metric.metadata.name: reading_of(metric) for metric in metrics.items}
    of_pods = usage_of_pods(pods.items, by_node)
    if options.what == "pods":
        return of_pods
    of_nodes = usage_of_nodes(nodes.items, of_pods, by_node)
    return of_nodes if options.what == "nodes" else usage_of_cluster(of_nodes)


_AMOUNTS: Final = ("allocated", "measured", "reclaimable")


def _text(options: argparse.Namespace, rows: Sequence[Any], terminal: Terminal) -> str:
    if not rows:
        return "No resources found.\n"
    of_pods = options.what == "pods"
    names = ("pod", "node", "class", "qos") if of_pods else (("node",) if options.what == "nodes" else ())
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in names if of_pods else (*names, "class", "pods"):
        table.add_column(column, overflow="fold")
    for resource in ("cpu", "memory"):
        for column in _AMOUNTS[:2] if of_pods else _AMOUNTS:
            table.add_column(f"{resource} {column}", justify="right")
    table.add_column("suppressed" if of_pods else "cpu suppressed", justify="right")
    for row in rows:
        for cells in _cells(row):
            table.add_row(*(escape(terminal.readable(cell)) for cell in cells))
    console = terminal.console()
    print_whole(console, table)
    return text_of(console)


def _cells(row: ClassUsage | NodeUsage | PodUsage) -> list[list[str]]:
    if isinstance(row, PodUsage):
        amounts = _shown([row.allocated, row.measured])
        return [[row.key, row.node, row.class_name, row.qos, *amounts, "yes" if row.is_suppressed else ""]]
    if isinstance(row, ClassUsage):
        return [_cells_of_class(row)]
    pods = sum(usage.pods for usage in row.classes.values())
    own = [row.name, "(allocatable)", str(pods), *_shown([row.allocatable, row.measured, None]), ""]
    return [own, *(["", *_cells_of_class(usage)] for usage in row.classes.values())]


def _cells_of_class(usage: ClassUsage) -> list[str]:
    amounts = _shown([usage.allocated, usage.measured, usage.reclaimable])
    return [usage.name, str(usage.pods), *amounts, _amount(CPU, usage.suppressed)]


def _shown(amounts: Sequence[Amounts | None]) -> list[str]:
    """CPU of all, then memory of all."""
    cpus = [_amount(CPU, each.cpu) if each is not None else "" for each in amounts]
    return cpus + [_amount(MEMORY, each.memory) if each is not None else "" for each in amounts]


def _amount(resource: str, amount: int) -> str:
    """As ``kubectl top`` writes it; nothing for none."""
    if not amount:
        return ""
    return f"{amount}m" if resource == CPU else f"{amount >> 20}Mi"
