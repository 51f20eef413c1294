"""``koord explain``: why a pod is pending or where it is, why a node takes pods or not, what a quota may use, what a
gang waits for, who may use a Reservation, how far a migration is, and which pods of a node suffer from others."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from koordinator.api.codec import to_document
from koordinator.api.explanations import (
    ApiState,
    Explanation,
    InterferenceExplanation,
    PodExplanation,
    WorkloadExplanation,
)
from koordinator.api.meta import FreeForm
from koordinator.api.node_explanation import NodeExplanation
from koordinator.api.rebalance_explanation import RebalanceExplanation
from koordinator.base.errors import ConfigurationError
from koordinator.cli.data_folder import DESCHEDULER, MANAGER, default_data_folder
from koordinator.cli.explain_cluster import Cluster, ClusterOptions, find_cluster, seconds
from koordinator.cli.explain_failure import (
    API_ALONE,
    EXPLAINED,
    ExplainError,
)
from koordinator.cli.explain_gang import print_gang
from koordinator.cli.explain_interference import print_interference
from koordinator.cli.explain_migration import print_migration
from koordinator.cli.explain_node import print_configuration, print_node, print_suppression
from koordinator.cli.explain_pod import print_pod, print_timeline
from koordinator.cli.explain_quota import print_quota
from koordinator.cli.explain_rebalance import print_rebalance
from koordinator.cli.explain_reservation import print_reservation
from koordinator.cli.explain_source import SECONDS, ProgramEndpoint, endpoint_of
from koordinator.cli.explain_target import Target, TargetKind, help_of_kind, parse_target
from koordinator.cli.explain_terminal import (
    Terminal,
    escape,
    print_table,
    print_text,
    text_of,
)
from koordinator.cli.explanation import Explained, Sources, explain
from koordinator.cli.output_forms import ALL, add_namespace, add_output, add_watch
from koordinator.cli.query import Answer, Ask, run_query
from koordinator.cli.session import Session
from koordinator.kube.connect import ClientOptions

# What the API says of a pod or a node, on a terminal: its state, the scheduler's last word on it, its events.


_EVENTS_SHOWN: Final = 5


def print_state(api: ApiState, console: Console) -> None:
    """The sentence, and what to do next."""
    print_text(console, f"[bold]{escape(api.sentence)}[/bold]")
    if api.next:
        print_text(console, escape(api.next), indent=2)


def print_api(api: ApiState, console: Console) -> None:
    """All of it, for an object of which the scheduler says nothing."""
    print_state(api, console)
    for line in (*([api.message] if api.message else ()), *(api.facts or ())):
        print_text(console, escape(line), indent=2)
    if api.events:
        table = Table("last seen", "from", "reason", "message")
        for event in api.events[-_EVENTS_SHOWN:]:
            table.add_row(*map(escape, (event.time, event.from_, event.reason, event.message)))
        print_table(console, "Its last events", table)


_DESCRIPTION = """\
Ask a running koord-scheduler why a pod is pending, why it is on its node, why a node takes pods or does not, what an
elastic quota may use, what a gang waits for, or who uses a Reservation. Ask koord-manager how the batch and mid
capacity of a node is computed. Read what koordlet has reported of pods that suffer from others, and how far
koord-descheduler is with a migration. Ask koord-descheduler what it would do now. Without options, the cluster is
that of kubectl (KUBECONFIG, else ~/.kube/config), else that of the `koord up` that runs on this machine. Objects that
the scheduler does not know are looked up in the API. What you may not read is left out, with the permission it needs.
"""
_EPILOG = """\
examples:
  koord explain pod web                        why is web pending, or on the node that it is on? (also: pod/web, po web)
  koord explain pod job-17 -n team-a           in another namespace (also: koord explain pod team-a/job-17)
  koord explain node node-3                    what is on the node, its thresholds, who keeps pods off it, and
                                               how its batch and mid capacity is computed
  koord explain quota team-a                   what the quota may use now and why, who lends to whom, who is next
  koord explain gang team-a/training           which members have a node, and who waits for what (also: pg training)
  koord explain reservation web-release        whose it is, who uses it, what is left, and which owners wait and why
  koord explain interference node-3            which pods of the node suffer from others, and from whom
  koord explain migration move-web             how far a PodMigrationJob is, and what it waits for (also: pmj move-web)
  koord explain deployment web                 how many of its pods there are, and who should make the others
  koord explain rebalance                      whom koord-descheduler would evict now and why, and why all others stay
  koord explain pod web --context production   in another cluster of the kubeconfig
  koord explain pod web -w                     again when it has changed, until Ctrl-C
  koord explain pod web -o json | jq .closestNodes
  koord explain rebalance -o name              the pods that would leave
  koord explain pod web --scheduler http://127.0.0.1:10251
                                               after kubectl port-forward to the scheduler's pod

koord explain KIND --help says more of one kind.

exit status:
  0 explained                        3 there is no such object         5 the scheduler could not be queried: what is
  1 no program could be queried      4 not signed in, or not allowed     said is from the API alone
  2 a wrong command or kubeconfig    130 interrupted, 141 the reader of the output is gone, 70 a defect of this command
"""


class _HelpOfKind(argparse.Action):
    """``koord explain gang --help`` is about gangs."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        words = getattr(namespace, "what", None) or [""]
        if text := help_of_kind(words[0]):
            print(text)
        else:
            parser.print_help()
        parser.exit()


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "explain",
        add_help=False,
        help="say why a pod is pending or where it is, or why a node takes no pods",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-h", "--help", action=_HelpOfKind, nargs=0, help="show this help, or that of the KIND before it"
    )
    parser.add_argument(
        "what",
        nargs="*",
        metavar="pod NAME | node NAME | KIND NAME | interference NODE | rebalance",
        help="what to explain; KIND is quota, gang, reservation, migration, or deployment and its like; also "
        "pod/NAME, po NAME, no NAME",
    )
    add_namespace(parser, "that of the pod or gang")
    add_output(parser, *ALL, names="what is explained, or of the pods that would leave or that suffer,")
    add_watch(parser)
    add_sources(parser)
    parser.set_defaults(run=run)


def add_sources(parser: argparse.ArgumentParser) -> None:
    """The options by which a cluster and its programs are found, and how long they are waited for."""
    parser.add_argument(
        "--request-timeout",
        type=seconds,
        default=SECONDS,
        metavar="SECONDS",
        help="how long to wait for each response (default: %(default)g)",
    )
    add_cluster(parser)
    _add_programs(parser)


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """The options by which a cluster is found."""
    group = parser.add_argument_group("which cluster to query (default: kubectl's, else that of koord up)")
    where = group.add_mutually_exclusive_group()
    where.add_argument("--kubeconfig", type=Path, metavar="FILE", help="instead of KUBECONFIG and ~/.kube/config")
    where.add_argument(
        "--data", type=Path, metavar="DIR", help=f"the folder of a koord up (default: {default_data_folder()})"
    )
    group.add_argument("--context", default="", metavar="NAME", help="of the kubeconfig (default: the current one)")


def find_named_cluster(options: argparse.Namespace) -> Cluster | None:
    """The cluster that the options of ``add_cluster`` name. Raises UsageError."""
    return find_cluster(
        ClusterOptions(options.kubeconfig, options.context, options.data, options.request_timeout, os.environ)
    )


def needed_cluster(options: argparse.Namespace) -> tuple[Cluster, ClientOptions]:
    """The same, with what its API is reached by. Raises ExplainError where there is none."""
    cluster = find_named_cluster(options)
    if cluster is None or cluster.client is None:
        raise ExplainError("no cluster found: name one with --kubeconfig, or the folder of a koord up with --data")
    return cluster, cluster.client


def _add_programs(parser: argparse.ArgumentParser) -> None:
    """The options by which its programs are found."""
    programs = (
        ("scheduler", "", "which scheduler to query", "koord-scheduler", "healthz", 10251, 10259),
        ("manager", "manager-", "which manager to query about nodes", "koordinator-manager", "metrics", 8080, 10257),
        ("descheduler", "descheduler-", "which descheduler to query", "koord-descheduler", "metrics", 10251, 10258),
    )
    for name, prefix, title, lease, path, plain, port in programs:
        group = parser.add_argument_group(f"{title} (default: the one that holds the Lease)")
        group.add_argument(
            f"--{name}", metavar="URL", help=f"where it serves /{path}, such as http://127.0.0.1:{plain}"
        )
        group.add_argument(
            f"--{prefix}lease",
            default=f"koordinator-system/{lease}",
            metavar="NAMESPACE/NAME",
            help=f"the Lease of the {name} (default: %(default)s)",
        )
        group.add_argument(
            f"--{prefix}port", type=_port, default=port, help="its secure port in a cluster (default: %(default)s)"
        )


def run(options: argparse.Namespace) -> int:
    """Query and print; the exit status is documented in the help."""
    return run_query(options, lambda terminal: _question(options, terminal))


def _question(options: argparse.Namespace, terminal: Terminal) -> Ask:
    target = parse_target(options.what, options.namespace)
    return partial(answer, target, sources_of(options), terminal)


async def answer(target: Target, sources: Sources, terminal: Terminal, session: Session) -> Answer:
    """Everything about the target, in every form. Raises ExplainError when nothing at all is to be had."""
    result = await explain(target, sources, session)
    status, note = EXPLAINED, ""
    if result.incomplete is not None:
        note = f"koord-scheduler could not be queried, this is from the API alone: {result.incomplete}"
        status = API_ALONE
    text = partial(_text, result, sources.cluster, terminal)
    return Answer(_document(result, sources.cluster), text, _names(result), status, note)


def sources_of(options: argparse.Namespace) -> Sources:
    """What those options name. Raises ExplainError and ConfigurationError."""
    lease, manager_lease = _lease("--lease", options.lease), _lease("--manager-lease", options.manager_lease)
    descheduler_lease = _lease("--descheduler-lease", options.descheduler_lease)
    cluster = find_named_cluster(options)
    if cluster is None and not (options.scheduler or options.descheduler or options.manager):
        raise ExplainError(
            "no scheduler found: there is no kubeconfig (KUBECONFIG, ~/.kube/config), and "
            f"{default_data_folder()} is not the folder of a running koord up; --data names another, "
            "scheduler with --scheduler, or a cluster with --kubeconfig"
        )
    local = cluster.data if cluster is not None else None
    endpoint = ProgramEndpoint(
        url=options.scheduler,
        # The programs of `koord up` are queried where they serve: they are not pods.
        client=cluster.client if cluster is not None and local is None else None,
        lease=lease,
        port=options.port,
        data=local or default_data_folder(),
        cluster=cluster.name if cluster is not None else "the cluster",
        seconds=options.request_timeout,
    )
    sure = options.scheduler is None or bool(options.kubeconfig or options.context or options.data)
    manager = endpoint_of(MANAGER, endpoint, options.manager, manager_lease, options.manager_port)
    descheduler = endpoint_of(DESCHEDULER, endpoint, options.descheduler, descheduler_lease, options.descheduler_port)
    return Sources(endpoint, manager, descheduler, cluster, cluster_is_sure=sure)


def _document(result: Explained, cluster: Cluster | None) -> FreeForm:
    """All that is known, for programs."""
    incomplete = str(result.incomplete) if result.incomplete is not None else None
    where = cluster.document if cluster is not None else None
    found: FreeForm = to_document(replace(result.document, cluster=where, scheduler_not_queried=incomplete))
    return found


def _names(result: Explained) -> list[str]:
    """In the form that ``koord explain`` takes: the object; the pods that would leave; the pods that suffer."""
    match result.document:
        case RebalanceExplanation() as rebalance:
            return [f"pod/{planned.pod}" for planned in rebalance.evictions]
        case InterferenceExplanation() as interference:
            return [f"pod/{victim['pod']}" for victim in interference.victims]
        case WorkloadExplanation() as workload:
            return [f"{workload.kind.lower()}/{workload.workload}"]
        case document:
            return [f"{result.kind}/{getattr(document, result.kind)}"]


_PRINTERS: Final[Mapping[TargetKind, Callable[[Any, Console], None]]] = {
    "pod": print_pod,
    "node": print_node,
    "quota": print_quota,
    "gang": print_gang,
    "reservation": print_reservation,
    "interference": print_interference,
    "migration": print_migration,
    "rebalance": print_rebalance,
}


def _text(result: Explained, cluster: Cluster | None, terminal: Terminal) -> str:
    console = terminal.console()
    document = terminal.readable(result.document)
    if document.api is not None and not _has_more(document):
        print_api(document.api, console)
    else:
        if document.api is not None:
            print_state(document.api, console)
            console.print()
        _PRINTERS[result.kind](document, console)
    if isinstance(document, PodExplanation):
        print_timeline(document, console)
    if isinstance(document, NodeExplanation) and document.suppression is not None:
        print_suppression(document.suppression, console)
    if isinstance(document, NodeExplanation) and document.koordlet_configuration is not None:
        print_configuration(document.koordlet_configuration, console)
    lines = [terminal.readable(line) for line in _queried(document, result.kind, cluster)]
    if lines:
        console.print()
    for line in lines:
        print_text(console, f"[dim]{escape(line)}[/dim]")
    return text_of(console)


def _has_more(document: Explanation) -> bool:
    """Whether the scheduler has said anything, too."""
    return isinstance(document, PodExplanation) and document.attempts is not None


def _queried(document: Explanation, kind: TargetKind, cluster: Cluster | None) -> Iterator[str]:
    """What was guessed, what was missing, and which programs were queried."""
    if document.taken_for:
        other = "node" if kind == "pod" else "pod"
        name = getattr(document, kind).rpartition("/")[2]
        yield f"{name} was taken for a {kind}; if it is a {other}: koord explain {other} {name}"
    for sentence in document.left_out or ():
        yield f"{sentence[0].upper()}{sentence[1:]}."
    if document.left_out:
        yield "Who administers the cluster can give you the roles for it: docs/explain.md names them."
    if document.api_not_queried:
        yield f"The API could not be queried: {document.api_not_queried}"
    if isinstance(document, PodExplanation) and document.audit_not_queried:
        yield f"The audit could not be queried: {document.audit_not_queried}"
    if cluster is not None:
        yield f"Queried: {cluster.name}"


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r}: a port is a number from 1 to 65535")
    return int(text)


def _lease(flag: str, text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise ConfigurationError(flag, text, "NAMESPACE/NAME is needed")
    return namespace, name
