"""``koord migrate``: move one pod to another node, by a PodMigrationJob that koord-descheduler carries out."""

from __future__ import annotations

import argparse
from typing import Any, Final

from koordinator.api import pod_migration_job as jobs
from koordinator.api.kinds import POD_MIGRATION_JOBS, PODS
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.base.durations import parse_duration
from koordinator.base.spelling import near
from koordinator.cli.explain_cluster import Cluster
from koordinator.cli.explain_failure import NotFoundError, UsageError
from koordinator.cli.explain_target import parse_target
from koordinator.cli.output_forms import add_namespace
from koordinator.cli.progress import Progress, add_writing, follow_object, run_with_client
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import ApiStatusError

FAILED: Final = 1
_SAID: Final = 3
_WITHOUT_RESERVATIONS: Final = "default-scheduler"
_DESCRIPTION = """\
Move a pod to another node: a Reservation keeps its place there before it is evicted, unless --evict is given.
koord-descheduler does it, within its limits; this command creates the PodMigrationJob and shows how far it is. Ctrl-C
ends the command alone.
"""
_EPILOG = """\
examples:
  koord migrate web-7d4b9-x2x1                and wait until its replacement runs
  koord migrate web-7d4b9-x2x1 -n shop        in another namespace (also: koord migrate shop/web-7d4b9-x2x1)
  koord migrate web-7d4b9-x2x1 --evict        without a place that is reserved for it before
  koord migrate web-7d4b9-x2x1 --no-wait      start it; koord explain migration NAME shows how far it is

exit status: 0 when the pod was moved, 1 when it was not, 3 when there is no such pod, 130 after Ctrl-C
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "migrate",
        help="move a pod by a PodMigrationJob, and show how far that is",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pod", metavar="POD", help="its name, also as pod/NAME or NAMESPACE/NAME")
    add_namespace(parser, "that of the pod")
    parser.add_argument("--evict", action="store_true", help="evict it without a place that is reserved for it before")
    parser.add_argument("--ttl", type=_duration, default="5m", metavar="DURATION", help="give up then (default: 5m)")
    add_writing(parser)
    parser.set_defaults(run=run)


def _duration(text: str) -> str:
    try:
        parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: a duration such as 5m or 1h30m is needed") from error
    return text


def run(options: argparse.Namespace) -> int:
    """Create it, and follow it."""
    created: list[str] = []

    def goes_on() -> str:
        if not created:
            return "interrupted; nothing was created"
        name = created[0]
        return (
            f"koord-descheduler goes on without you: koord explain migration {name} shows how far it is, "
            f"kubectl delete podmigrationjob {name} gives it up"
        )

    return run_with_client(options, lambda client, cluster: _migrate(options, client, cluster, created), goes_on)


async def _migrate(options: argparse.Namespace, client: KubeClient, cluster: Cluster, created: list[str]) -> int:
    target = parse_target(["pod", options.pod.removeprefix("pod/")], options.namespace)
    pod = await _pod(client, cluster, target.namespace or cluster.namespace, target.name)
    if not pod.spec.node_name:
        raise UsageError(f"pod {pod.metadata.key} is on no node yet: there is nothing to move")
    # On `koord up`, koord-scheduler places these pods, too.
    if not options.evict and cluster.data is None and pod.spec.scheduler_name == _WITHOUT_RESERVATIONS:
        raise UsageError(
            f"pod {pod.metadata.key} asks for {_WITHOUT_RESERVATIONS}, which uses no Reservation: with --evict it is "
            "moved without one"
        )
    name = await _create(client, options, pod)
    created.append(name)
    if options.no_wait:
        print(f"podmigrationjob/{name} created; koord explain migration {name} shows how far it is")
        return 0
    return await follow_object(client, POD_MIGRATION_JOBS, name, progress_of)


async def _pod(client: KubeClient, cluster: Cluster, namespace: str, name: str) -> Pod:
    try:
        return await client.get(PODS, name, namespace)
    except ApiStatusError as error:
        if not error.is_not_found:
            raise
        names = [pod.metadata.name for pod in (await client.list(PODS, namespace)).items]
        like = [each for each in names if each.startswith(f"{name}-")][:3] or near(name, names, 3)
        hint = f"; did you mean {' or '.join(like)}?" if like else ""
        raise NotFoundError(f"there is no pod {namespace}/{name} in {cluster.name}{hint}") from error


async def _create(client: KubeClient, options: argparse.Namespace, pod: Pod) -> str:
    metadata = pod.metadata
    spec: dict[str, Any] = {
        "podRef": {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid},
        "mode": jobs.EVICT_DIRECTLY if options.evict else jobs.RESERVATION_FIRST,
        "ttl": options.ttl,
    }
    body = {
        "apiVersion": POD_MIGRATION_JOBS.api_version,
        "kind": POD_MIGRATION_JOBS.name,
        "metadata": {"generateName": f"{metadata.name[:200]}-"},
        "spec": spec,
    }
    return (await client.create(POD_MIGRATION_JOBS, body)).metadata.name


def progress_of(job: PodMigrationJob, looks: int = 1) -> Progress:
    """What is shown of it after so many looks."""
    reference, status = job.spec.pod_ref, job.status
    pod = f"{reference.namespace}/{reference.name}" if reference is not None else job.metadata.name
    if status.phase == jobs.SUCCEEDED:
        if status.pod_ref is None:
            return Progress(f"{pod} was evicted", 0)
        where = f" on {status.node_name}" if status.node_name else ""
        return Progress(f"{pod} was moved: {status.pod_ref.namespace}/{status.pod_ref.name}{where} is in its place", 0)
    if status.phase in (jobs.FAILED, jobs.ABORTED):
        return Progress(f"{pod} was not moved: {status.message or status.reason or 'no reason is given'}", FAILED)
    if not status.phase:
        waits = "koord-descheduler has not taken it up"
        return Progress(f"{pod}: {waits}{'; does it run?' if looks > _SAID else ''}")
    last = status.conditions[-1] if status.conditions else None
    said = (last.message or last.reason or last.type) if last is not None else "it waits for arbitration"
    where = f" (to {status.node_name})" if status.node_name else ""
    return Progress(f"{pod}: {status.phase.lower()}{where}: {said}")
