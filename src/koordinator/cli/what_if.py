"""``koord what-if``: what a change would do to a cluster, found out on a snapshot in this process."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any, Final

from koordinator.cli.arguments import whole_number
from koordinator.cli.data_folder import default_data_folder
from koordinator.cli.explain_cluster import seconds
from koordinator.cli.explain_failure import ForbiddenError, UsageError
from koordinator.cli.explain_terminal import Terminal, text_of
from koordinator.cli.output_forms import ALL, add_namespace, add_output
from koordinator.cli.query import Answer, run_query
from koordinator.cli.what_if_input import STANDARD_INPUT, check_names, read_objects, source_of
from koordinator.simulate.snapshot import NotListedError, SnapshotError

FOUND_PROBLEMS: Final = 6
"""The exit status with ``--check``."""
_SECONDS: Final = 60.0
_LOOK_AHEAD: Final = 5.0

_DESCRIPTION = """\
What would happen? A snapshot of the cluster is listed into this process, the change is made there, and the real
koord-scheduler places, evicts and preempts pods there until nothing moves. Nothing is written to the cluster: list
requests are all that it is sent, so that a role that may only list is enough (docs/examples/what-if-role.yaml).
"""
_EPILOG = """\
examples:
  koord what-if drain node-3                       where would its pods go, and what would stay pending?
  koord what-if apply -f web.yaml --replicas 20    would these pods fit, and who would have to make way for them?
  koord what-if fit -f web.yaml                    how many more of them fit, and what stops the next one?
  koord what-if scale deployment/web --replicas 30 -n shop
  koord what-if add-node --like node-3 --count 2   which pending pods would two more nodes take?
  koord what-if remove-node node-3                 as if the machine were gone from one moment to the next
  koord what-if delete deployment/old -n shop      what would fit then?
  koord what-if config -f scheduler.yaml           with another configuration of the scheduler, who gets a node?
  koord what-if config -f scheduler.yaml --replay
                                                   and where would all pods be, had it always been that one?
  koord what-if colocation -f slo-controller-config.yaml
                                                   what batch and mid capacity would each node have?
  koord what-if changes -f plan.yaml               several changes, one after the other
  koord what-if snapshot today.snapshot            keep a snapshot, to query it later and elsewhere:
  koord what-if drain node-3 --snapshot today.snapshot

koord what-if COMMAND --help has the options of each.

not simulated: kubelets (their own admission, image pulls, start-up, readiness); autoscalers, operators and
koord-descheduler; changes of load: node metrics stay as in the snapshot; LimitRanges, and webhooks other than
koord-manager's for pods

exit status:
  0 simulated                           3 what the change names is not there, or would be refused
  1 no snapshot could be taken          4 not signed in, or not allowed to list
  2 a wrong command, file or kubeconfig 6 with --check: pods would stay pending, or could not be evicted
  130 interrupted, 141 the reader of the output is gone, 70 a defect of this command
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "what-if",
        help="say what a change would do: a drain, a new workload, another node",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    common = _common()
    kinds = parser.add_subparsers(title="what", metavar="COMMAND", required=True)
    for add in (
        _add_apply,
        _add_fit,
        _add_scale,
        _add_delete,
        _add_drain,
        _add_add_node,
        _add_remove_node,
        _add_config,
        _add_colocation,
        _add_changes,
        _add_snapshot,
    ):
        add(kinds, common)


def _common() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    add_namespace(parser, "that of objects that name none")
    add_output(parser, *ALL, names="the pods that would stay pending")
    parser.add_argument(
        "--check", action="store_true", help="exit with 6 where pods would stay pending or could not be evicted"
    )
    group = parser.add_argument_group("the snapshot (default: of kubectl's cluster, else of that of koord up)")
    where = group.add_mutually_exclusive_group()
    where.add_argument("--kubeconfig", type=Path, metavar="FILE", help="instead of KUBECONFIG and ~/.kube/config")
    where.add_argument(
        "--data", type=Path, metavar="DIR", help=f"the folder of a koord up (default: {default_data_folder()})"
    )
    where.add_argument("--snapshot", type=Path, metavar="FILE", help="one that was saved; no cluster is queried")
    group.add_argument("--context", default="", metavar="NAME", help="of the kubeconfig (default: the current one)")
    group.add_argument(
        "--save", type=Path, metavar="FILE", help="keep the snapshot that is taken, readable by you alone"
    )
    group.add_argument(
        "--request-timeout",
        type=seconds,
        default=_SECONDS,
        metavar="SECONDS",
        help="how long to wait for each list (default: %(default)g)",
    )
    group = parser.add_argument_group("the simulation")
    group.add_argument(
        "--scheduler-config",
        type=Path,
        metavar="FILE",
        help="the scheduler's configuration (default: that of the cluster)",
    )
    group.add_argument(
        "--scheduler-flag",
        action="append",
        default=[],
        metavar="FLAG",
        help="of the scheduler's command line: --scheduler-flag=--feature-gates=ResizePod=true; may be repeated",
    )
    group.add_argument(
        "--look-ahead",
        type=seconds,
        default=_LOOK_AHEAD,
        metavar="SECONDS",
        help="simulated time after the last placement, in which controllers may still act (default: %(default)g)",
    )
    group.add_argument("--seed", type=int, default=0, help="decides between nodes with the same score (default: 0)")
    return parser


def _command(kinds: Any, common: argparse.ArgumentParser, name: str, summary: str) -> argparse.ArgumentParser:
    description = f"{summary[0].upper()}{summary[1:]}."
    parser: argparse.ArgumentParser = kinds.add_parser(name, help=summary, description=description, parents=[common])
    parser.set_defaults(run=run, change=name)
    return parser


def _add_apply(kinds: Any, common: argparse.ArgumentParser) -> None:
    summary = "apply objects: pods, workloads, quotas, priority classes, reservations, nodes"
    parser = _command(kinds, common, "apply", summary)
    _add_files(parser)
    parser.add_argument("--replicas", type=whole_number(0), metavar="N", help="of each workload, or pods like each Pod")


def _add_fit(kinds: Any, common: argparse.ArgumentParser) -> None:
    summary = "how many more pods like this one fit, and what stops the next one"
    parser = _command(kinds, common, "fit", summary)
    _add_files(parser)
    parser.add_argument("--at-most", type=whole_number(0), default=1000, metavar="N", help="(default: %(default)d)")
    parser.add_argument("--with-preemption", action="store_true", help="they may evict pods that are less important")


def _add_scale(kinds: Any, common: argparse.ArgumentParser) -> None:
    parser = _command(kinds, common, "scale", "give a workload another number of pods")
    parser.add_argument("workload", metavar="KIND/NAME", help="such as deployment/web")
    parser.add_argument("--replicas", type=whole_number(0), required=True, metavar="N")


def _add_delete(kinds: Any, common: argparse.ArgumentParser) -> None:
    parser = _command(kinds, common, "delete", "delete an object, a workload with its pods")
    parser.add_argument("object", metavar="KIND/NAME", help="such as deployment/web or elasticquota/team-a")


def _add_drain(kinds: Any, common: argparse.ArgumentParser) -> None:
    summary = "drain nodes, as kubectl drain --ignore-daemonsets --delete-emptydir-data"
    parser = _command(kinds, common, "drain", summary)
    parser.add_argument("nodes", nargs="+", metavar="NODE")
    parser.add_argument("--force", action="store_true", help="also pods without a controller, which are lost")


def _add_add_node(kinds: Any, common: argparse.ArgumentParser) -> None:
    parser = _command(kinds, common, "add-node", "add empty nodes like one that there is")
    parser.add_argument("--like", required=True, metavar="NODE")
    parser.add_argument("--count", type=whole_number(1), default=1, metavar="N", help="(default: 1)")
    parser.add_argument(
        "--label", type=_label, action="append", default=[], metavar="KEY=VALUE", help="instead of that of the node"
    )


def _add_remove_node(kinds: Any, common: argparse.ArgumentParser) -> None:
    summary = "remove nodes from one moment to the next, as when machines fail; budgets do not count"
    parser = _command(kinds, common, "remove-node", summary)
    parser.add_argument("nodes", nargs="+", metavar="NODE")


def _add_config(kinds: Any, common: argparse.ArgumentParser) -> None:
    summary = "run the scheduler with another configuration; pods that have a node keep it"
    parser = _command(kinds, common, "config", summary)
    parser.add_argument(
        "-f",
        dest="file",
        type=Path,
        required=True,
        metavar="FILE",
        help="a KubeSchedulerConfiguration or its ConfigMap",
    )
    parser.add_argument(
        "--replay",
        action="store_true",
        help="also place all pods anew under both configurations, in the order of their creation, and compare",
    )


def _add_colocation(kinds: Any, common: argparse.ArgumentParser) -> None:
    summary = "change slo-controller-config: the batch and mid capacity of each node, by koord-manager's own plan"
    parser = _command(kinds, common, "colocation", summary)
    _add_files(parser)


def _add_changes(kinds: Any, common: argparse.ArgumentParser) -> None:
    summary = "make several changes, one after the other (docs/what-if.md has the fields of the file)"
    parser = _command(kinds, common, "changes", summary)
    parser.add_argument("-f", dest="file", type=Path, required=True, metavar="FILE", help="YAML; - for standard input")


def _add_snapshot(kinds: Any, common: argparse.ArgumentParser) -> None:
    summary = "keep a snapshot for later; it has neither Secrets nor the environment of containers"
    parser: argparse.ArgumentParser = kinds.add_parser("snapshot", help=summary, description=summary, parents=[common])
    parser.add_argument("file", type=Path, metavar="FILE", help="is made readable by you alone")
    parser.set_defaults(run=run, change=None)


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", dest="files", action="append", required=True, metavar="FILE", help="YAML or JSON; - for standard input"
    )


def run(options: argparse.Namespace) -> int:
    """Simulate, print; the exit status is documented in the help."""
    return run_query(options, lambda terminal: lambda _: _answer(options, terminal))


async def _answer(options: argparse.Namespace, terminal: Terminal) -> Answer:
    try:
        document = await (_save_alone(options) if options.change is None else _simulate(options))
    except NotListedError as error:
        raise ForbiddenError(str(error)) from error
    except SnapshotError as error:
        raise UsageError(str(error)) from error
    pending, blocked = document.get("pending") or (), document.get("blocked")
    names = [each["pod"] for group in pending for each in group["pods"]]
    status = FOUND_PROBLEMS if options.check and (pending or blocked) else 0
    return Answer(document, partial(_text, document, terminal), names, status)


def _text(document: dict[str, Any], terminal: Terminal) -> str:
    from koordinator.cli.what_if_report import print_outcome

    console = terminal.console()
    print_outcome(terminal.readable(document), console)
    return text_of(console)


async def _simulate(options: argparse.Namespace) -> dict[str, Any]:
    source = source_of(options)
    if STANDARD_INPUT not in (files := getattr(options, "files", None) or [STANDARD_INPUT]):
        read_objects(files)
    await check_names(source, [*getattr(options, "nodes", ()), *filter(None, [getattr(options, "like", "")])])
    # Loaded now: the scheduler takes a second, in which a typing mistake has long been said.
    from koordinator.cli.what_if_changes import simulate

    return await simulate(options, source)


async def _save_alone(options: argparse.Namespace) -> dict[str, Any]:
    options.save = options.file
    snapshot = await source_of(options).snapshot()
    return {
        "saved": str(options.file),
        "cluster": snapshot.cluster,
        "ended": snapshot.ended.isoformat(),
        "objects": {kind: len(found) for kind, found in snapshot.objects.items()},
        "missing": dict(snapshot.missing),
    }


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: KEY=VALUE is needed")
    return key, value
