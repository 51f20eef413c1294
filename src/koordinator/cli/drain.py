"""``koord drain``: empty a node without losing capacity, by a DrainNode that koord-descheduler carries out."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any, Final

from koordinator.api import drain_node as drains
from koordinator.api.drain_node import DrainNode
from koordinator.api.kinds import DRAIN_NODES, NODES
from koordinator.api.pod_migration_job import EVICT_DIRECTLY
from koordinator.base.spelling import near
from koordinator.cli.explain_cluster import Cluster
from koordinator.cli.explain_failure import NotFoundError
from koordinator.cli.progress import Progress, add_writing, follow_object, run_with_client
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType

FAILED: Final = 1
_ENDED: Final = (drains.COMPLETE, drains.ABORTED)
_GONE: Final = (drains.POD_SUCCEED,)
_SAID: Final = 3
_DESCRIPTION = """\
Empty a node: keep new pods off, reserve a place elsewhere for each pod, and move one after the other within the limits
of migration and of disruption budgets. koord-descheduler does it (feature gate NodeDrain); this command creates the
DrainNode, or finds the one that there is, and shows how far it is. Ctrl-C ends the command alone.
"""
_EPILOG = """\
examples:
  koord drain node-3                    and wait until it is empty
  koord what-if drain node-3            before: where would its pods go?
  koord drain node-3 --force            also pods without a controller, which nobody makes anew
  koord drain node-3 --no-wait          start it; the same command again shows how far it is
  koord drain node-3 --cancel           give up: the node takes pods again, and nothing more is moved

exit status: 0 when the node is empty, 1 when the drain was given up, 3 when there is no such node, 130 after Ctrl-C
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "drain",
        help="empty a node by its DrainNode, and show how far that is",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("node", metavar="NODE")
    parser.add_argument("--force", action="store_true", help="also pods without a controller")
    parser.add_argument("--delete-emptydir-data", action="store_true", help="also pods that lose data with the node")
    parser.add_argument(
        "--evict", action="store_true", help="evict pods without a place that is reserved for them before"
    )
    parser.add_argument("--cancel", action="store_true", help="give up the drain that goes on")
    add_writing(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Create it or find it, and follow it."""
    goes_on = (
        f"koord-descheduler goes on without you: koord drain {options.node} shows how far it is, "
        f"koord drain {options.node} --cancel gives it up"
    )
    return run_with_client(options, lambda client, cluster: _drain(options, client, cluster), lambda: goes_on)


async def _drain(options: argparse.Namespace, client: KubeClient, cluster: Cluster) -> int:
    await _check_node(client, cluster, options.node)
    found = await _going_on(client, options.node)
    if options.cancel:
        return await _cancel(client, options.node, found)
    name = found or await _create(client, options)
    if options.no_wait:
        print(f"drainnode/{name} {'goes on' if found else 'created'}; koord drain {options.node} shows how far it is")
        return 0
    return await follow_object(client, DRAIN_NODES, name, progress_of)


async def _check_node(client: KubeClient, cluster: Cluster, name: str) -> None:
    try:
        await client.get(NODES, name)
    except ApiStatusError as error:
        if not error.is_not_found:
            raise
        like = near(name, [node.metadata.name for node in (await client.list(NODES)).items], 3)
        hint = f"; did you mean {' or '.join(like)}?" if like else ""
        raise NotFoundError(f"there is no node {name} in {cluster.name}{hint}") from error


async def _going_on(client: KubeClient, node: str) -> str:
    """The name of the DrainNode that empties the node at present; empty without one."""
    found = [each for each in (await client.list(DRAIN_NODES)).items if each.spec.node_name == node]
    return next((each.metadata.name for each in found if each.status.phase not in _ENDED), "")


async def _create(client: KubeClient, options: argparse.Namespace) -> str:
    spec: dict[str, Any] = {"nodeName": options.node, "confirmState": drains.CONFIRMED}
    spec |= {"force": True} if options.force else {}
    spec |= {"deleteEmptyDirData": True} if options.delete_emptydir_data else {}
    spec |= {"migrationMode": EVICT_DIRECTLY} if options.evict else {}
    body = {
        "apiVersion": DRAIN_NODES.api_version,
        "kind": DRAIN_NODES.name,
        "metadata": {"generateName": f"{options.node}-"},
        "spec": spec,
    }
    return (await client.create(DRAIN_NODES, body)).metadata.name


async def _cancel(client: KubeClient, node: str, name: str) -> int:
    if not name:
        raise NotFoundError(f"nothing drains node {node}")
    await client.patch(DRAIN_NODES, name, {"spec": {"confirmState": drains.CONFIRM_ABORTED}}, PatchType.MERGE)
    print(f"drainnode/{name} is given up; node {node} takes pods again")
    return 0


def progress_of(drain: DrainNode, looks: int = 1) -> Progress:
    """What is shown of it after so many looks."""
    node, status = drain.spec.node_name, drain.status
    counts = Counter({phase: count for phase, count in status.pod_migration_summary.items() if count})
    moved = sum(counts[phase] for phase in _GONE)
    if status.phase == drains.COMPLETE:
        pods = f"{moved} pod{'' if moved == 1 else 's'} moved"
        return Progress(f"{node} is empty, {pods}; kubectl uncordon {node} lets pods onto it again", 0)
    if status.phase == drains.ABORTED:
        return Progress(f"{node}: the drain was given up: {status.message or 'no reason is given'}", FAILED)
    if not status.phase:
        waits = "koord-descheduler has not taken it up"
        return Progress(f"{node}: {waits}{'; does it run, with NodeDrain?' if looks > _SAID else ''}")
    others = ", ".join(f"{count} {phase.lower()}" for phase, count in counts.items() if phase not in _GONE)
    parts = [f"{moved} of {counts.total()} pods moved", *([others] if others else [])]
    parts += [each.message for each in status.conditions if each.status == "True" and each.message]
    return Progress(f"{node}: {status.phase.lower()}, {'; '.join(parts)}")
