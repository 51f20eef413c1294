"""``koord explain``: why a pod is pending or where it is, and why a node takes pods or does not."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from koordinator.base.errors import ConfigurationError
from koordinator.cli.data_folder import MANAGER, default_data_folder
from koordinator.cli.explain_node import print_node
from koordinator.cli.explain_pod import print_pod
from koordinator.cli.explain_source import NoAnswerError, Place, ask

_DESCRIPTION = """\
Ask a running koord-scheduler why a pod is pending, why it is where it is, or why a node takes pods or does not; and
koord-manager why a node offers as much batch and mid capacity as it does.
Without options it asks the programs of the `koord up` that runs on this machine.
"""
_EPILOG = """\
examples:
  koord explain pod web                        why is default/web pending, or on the node that it is on?
  koord explain pod team-a/job-17              the same, namespace first
  koord explain pod job-17 -n team-a           ... or as kubectl has it
  koord explain node node-3                    what is on the node, its thresholds, who keeps pods off it, and what
                                               its batch and mid capacity is the sum of
  koord explain pod web -o json | jq .closestNodes
  koord explain pod web --scheduler http://127.0.0.1:10251
                                               a scheduler that is not koord up's (kubectl port-forward)
  koord explain pod web --kubeconfig ~/.kube/config
                                               the leader that the Lease names, through the API server
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "explain",
        help="say why a pod is pending or where it is, or why a node takes no pods",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=("pod", "node"), help="what to explain")
    parser.add_argument("name", help="a pod as NAMESPACE/NAME or NAME, or a node")
    parser.add_argument("-n", "--namespace", metavar="NAME", help="the pod's namespace (default: default)")
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="tables for people, or all that is known"
    )
    where = parser.add_argument_group("which scheduler to ask").add_mutually_exclusive_group()
    where.add_argument("--scheduler", metavar="URL", help="where it serves /healthz: http://HOST:PORT")
    where.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="a cluster: ask the pod that holds the scheduler's Lease"
    )
    where.add_argument(
        "--data", type=Path, metavar="DIR", help=f"the folder of a koord up (default: {default_data_folder()})"
    )
    parser.add_argument(
        "--lease",
        default="koordinator-system/koord-scheduler",
        metavar="NAMESPACE/NAME",
        help="with --kubeconfig: the Lease of the scheduler (default: %(default)s)",
    )
    parser.add_argument(
        "--port", type=int, default=10251, help="with --kubeconfig: the port that it serves on (default: %(default)s)"
    )
    manager = parser.add_argument_group(
        "which manager to ask about nodes; by default it is looked for as the scheduler is"
    )
    manager.add_argument("--manager", metavar="URL", help="where it serves /metrics: http://HOST:PORT")
    manager.add_argument(
        "--manager-lease",
        default="koordinator-system/koordinator-manager",
        metavar="NAMESPACE/NAME",
        help="with --kubeconfig: the Lease of the manager (default: %(default)s)",
    )
    manager.add_argument(
        "--manager-port",
        type=int,
        default=8080,
        help="with --kubeconfig: the port of its metrics (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask, print."""
    place = Place(
        url=options.scheduler,
        kubeconfig=options.kubeconfig,
        lease=_lease("--lease", options.lease),
        port=options.port,
        data=options.data or default_data_folder(),
    )
    with asyncio.Runner() as runner:
        document = runner.run(ask(place, _path(options)))
        if options.kind == "node":
            document["offer"] = runner.run(_offer(options, place))
    if options.output == "json":
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _print(options.kind, document)
    return 0


def _print(kind: str, document: Mapping[str, Any]) -> None:
    console = Console()
    if kind == "pod":
        print_pod(document, console)
    else:
        print_node(document, console)


def _path(options: argparse.Namespace) -> str:
    if options.kind == "node":
        return f"/debug/explain-node/{options.name.removeprefix('node/')}"
    namespace, slash, name = options.name.rpartition("/")
    if slash and options.namespace and namespace != options.namespace:
        raise ConfigurationError("--namespace", options.namespace, f"the pod is named {options.name} already")
    return f"/debug/explain/{namespace or options.namespace or 'default'}/{name}"


async def _offer(options: argparse.Namespace, scheduler: Place) -> dict[str, Any]:
    """What the node offers beyond its own resources, and why; an error says why that is not known."""
    place = replace(
        scheduler,
        url=options.manager,
        kubeconfig=None if options.manager else scheduler.kubeconfig,
        lease=_lease("--manager-lease", options.manager_lease),
        port=options.manager_port,
        program=MANAGER,
        flags="--metrics-addr=:{port}",
    )
    try:
        offer: dict[str, Any] = await ask(place, f"/explain/node/{options.name.removeprefix('node/')}")
    except NoAnswerError as error:
        return {"error": str(error)}
    return offer


def _lease(flag: str, text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise ConfigurationError(flag, text, "NAMESPACE/NAME is needed")
    return namespace, name
