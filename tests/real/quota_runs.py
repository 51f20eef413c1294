"""Scenarios of elastic quotas, run with a scheduler as a process on a real API server: what became of pods and quotas.

A scenario is a list of steps; each pod is decided about before the next step, so that the outcome does not depend on
speed. The same scenario is run with the Go original's scheduler and with ours.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from koordinator.api.codec import encode
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, ELASTIC_QUOTAS, NAMESPACES, NODES, PODS, Kind
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.pod import ResourceList
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import EVENTS_V1
from koordinator.kube.interface import PatchType
from koordinator.model.quota_tree.annotation_values import read_amounts
from koordinator.scheduler.cycle.failure_report import scheduled_condition
from tests.real.control_plane import ControlPlane
from tests.real.decisions.original import original_scheduler
from tests.real.programs import RealPrograms
from tests.real.scheduler_configuration import write_configuration
from tests.real.watched import Watched, watching

PREFIX: Final = "quota.scheduling.koordinator.sh"
WRITTEN: Final = ("runtime", "request", "child-request", "non-preemptible-request", "non-preemptible-used")
"""The annotations that say what the scheduler has counted."""
BUILT_IN: Final = ("koordinator-root-quota", "koordinator-system-quota", "koordinator-default-quota")
_DECIDED: Final = 60.0
_SETTLED: Final = 40.0
_QUIET: Final = 4.0
_LOOK: Final = 0.2
_QUIET_FOR_ORIGINAL: Final = 15.0
"""It computes shares every ten seconds."""


def profile(**args: Any) -> dict[str, Any]:
    """ElasticQuota where Koordinator's own configuration has it."""
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "ElasticQuotaArgs"}
    quota = {"name": "ElasticQuota"}
    return {
        "schedulerName": "koord-scheduler",
        "plugins": {
            "preFilter": {"enabled": [quota]},
            "postFilter": {"disabled": [{"name": "*"}], "enabled": [quota, {"name": "DefaultPreemption"}]},
            "reserve": {"enabled": [quota]},
        },
        "pluginConfig": [{"name": "ElasticQuota", "args": {**header, **args}}],
    }


def quota(
    name: str,
    least: Mapping[str, str] | None = None,
    most: Mapping[str, str] | None = None,
    *,
    parent: str = "",
    weight: str = "",
    namespace: str = "default",
    namespaces: str = "",
    **labels: str,
) -> dict[str, Any]:
    """An ElasticQuota; ``labels`` are written with underscores: ``is_parent="true"``."""
    known = {f"{PREFIX}/{key.replace('_', '-')}": value for key, value in labels.items()}
    if parent:
        known[f"{PREFIX}/parent"] = parent
    annotations = {f"{PREFIX}/shared-weight": weight} if weight else {}
    if namespaces:
        annotations[f"{PREFIX}/namespaces"] = namespaces
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": namespace, "labels": known, "annotations": annotations},
        "spec": {"min": dict(least or {}), "max": dict(most or {})},
    }


def pod(name: str, of: str, cpu: str = "1", memory: str = "1Gi", priority: int = 0, **labels: str) -> dict[str, Any]:
    """A pod; ``of`` is its quota, empty for none."""
    known = {f"{PREFIX}/name": of} if of else {}
    known |= {f"{PREFIX}/{key}": value for key, value in labels.items()}
    requests = {key: amount for key, amount in (("cpu", cpu), ("memory", memory)) if amount}
    container = {"name": "main", "image": "pause", "resources": {"requests": requests}}
    return {
        "metadata": {"name": name, "labels": known},
        "spec": {
            "schedulerName": "koord-scheduler",
            "containers": [container],
            "priorityClassName": f"p{priority}",
            "terminationGracePeriodSeconds": 0,
        },
    }


@dataclass(frozen=True)
class Create:
    """A quota, or a pod that is waited for until it is decided about."""

    document: Mapping[str, Any]


@dataclass(frozen=True)
class Delete:
    """``default/name``; of a quota if ``kind`` says so."""

    name: str
    kind: str = "Pod"


@dataclass(frozen=True)
class Change:
    """A merge patch of a quota."""

    name: str
    patch: Mapping[str, Any]


@dataclass(frozen=True)
class Await:
    """Until the pod is on a node; it fails the run if that never happens."""

    name: str


Step = Create | Delete | Change | Await


@dataclass(frozen=True)
class Scenario:
    name: str
    steps: Sequence[Step]
    compared: tuple[str, ...] = (*WRITTEN, "used")
    """What of the quotas must be the same; less where differences.md says why."""
    compares_preemption: bool = True
    """Whether what DefaultPreemption says must be the same, too."""


@dataclass
class Outcome:
    """``pods``: name -> "" when it has a node, else why not. ``quotas``: name -> field -> amounts without zeros.
    ``events``: (kind, name, type, reason) of what there are events about, also if it is gone."""

    pods: dict[str, str] = field(default_factory=dict)
    quotas: dict[str, dict[str, ResourceList]] = field(default_factory=dict)
    events: set[tuple[str, str, str, str]] = field(default_factory=set)


def chain(*parts: Any) -> list[Step]:
    """Documents are created, steps are taken."""
    return [Create(part) if isinstance(part, Mapping) else part for part in parts]


@contextmanager
def our_scheduler(
    plane: ControlPlane, configuration: Path, log: Path, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ours until the end of the block, with more arguments."""
    command = [sys.executable, "-m", "koordinator.scheduler", f"--config={configuration}", "--port=0", *arguments]
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(30)


@contextmanager
def running(
    who: str, programs: RealPrograms, plane: ControlPlane, folder: Path, *, gates: str = "", **args: Any
) -> Iterator[subprocess.Popen[bytes] | None]:
    """The scheduler ``ours`` or ``original``, with feature gates and arguments of the plugin."""
    arguments = (f"--feature-gates={gates}",) if gates else ()
    configuration = write_configuration(
        folder / "scheduler.yaml",
        kubeconfig=plane.kubeconfig,
        profile=profile(**args),
        podInitialBackoffSeconds=1,
        podMaxBackoffSeconds=1,
    )
    if who == "ours":
        with our_scheduler(plane, configuration, folder / "ours.log", *arguments) as process:
            yield process
    else:
        with original_scheduler(programs, plane, configuration, folder / "original.log", *arguments):
            yield None


@asynccontextmanager
async def connected(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig), qps=0))
    try:
        yield client
    finally:
        await client.close()


async def prepare(client: KubeClient, nodes: int = 2, cpu: str = "50", memory: str = "100Gi") -> None:
    """CRDs, priority classes and nodes."""
    for definition in custom_resource_definitions():
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    for value in (0, 5, 10):
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        await client.raw(
            "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", encode({**body, "metadata": {"name": f"p{value}"}})
        )
    await client.create(NAMESPACES, {"metadata": {"name": "koordinator-system"}})
    resources = {"cpu": cpu, "memory": memory, "pods": "110"}
    for number in range(nodes):
        name = f"node-{number}"
        await client.create(NODES, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        status = {"status": {"capacity": resources, "allocatable": resources}}
        await client.patch(NODES, name, status, PatchType.MERGE, subresource="status")
    await _until_served(client)


async def _until_served(client: KubeClient) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await client.list(ELASTIC_QUOTAS)
            except ApiStatusError as error:
                if not error.is_not_found:
                    raise
                await asyncio.sleep(0.1)
            else:
                return


@asynccontextmanager
async def watched_quotas(client: KubeClient) -> AsyncIterator[Watched]:
    """Pods, quotas and events, for the functions below. The cluster has been prepared."""
    async with watching(client, (PODS, "default"), (ELASTIC_QUOTAS, ""), (EVENTS_V1, "default")) as watched:
        yield watched


async def take(watched: Watched, step: Step) -> None:
    """Take the step, and wait for what the scheduler makes of it."""
    client = watched.client
    if isinstance(step, Await):
        assert await watched.until(lambda: _has_node(watched, step.name), _DECIDED), f"{step.name} gets no node"
        return
    if isinstance(step, Create) and step.document.get("kind") != "ElasticQuota":
        await client.create(PODS, dict(step.document), "default")
        name = step.document["metadata"]["name"]
        assert await watched.until(lambda: is_decided(watched, name), _DECIDED), f"{name} is not decided about"
        return
    if isinstance(step, Create):
        await client.create(ELASTIC_QUOTAS, dict(step.document), step.document["metadata"]["namespace"])
    elif isinstance(step, Delete) and step.kind == "Pod":
        await client.delete(PODS, step.name, "default", grace_period_seconds=0)
    elif isinstance(step, Delete):
        await client.delete(ELASTIC_QUOTAS, step.name, "default")
    else:
        await client.patch(ELASTIC_QUOTAS, step.name, step.patch, PatchType.MERGE, "default")
    # The scheduler hears of it by its watch, and nothing shows that it has.
    await asyncio.sleep(0.3)


def _has_node(watched: Watched, name: str) -> bool:
    found = watched.get(PODS, name)
    return found is not None and bool(found.spec.node_name)


def is_decided(watched: Watched, name: str) -> bool:
    """Whether the pod has a node, or a condition that says why not."""
    found = watched.get(PODS, name)
    condition = scheduled_condition(found) if found is not None else None
    return _has_node(watched, name) or (condition is not None and condition.status == "False")


async def outcome(watched: Watched) -> Outcome:
    """How pods and quotas look now."""
    found = Outcome()
    for each in watched.list(PODS):
        condition = scheduled_condition(each)
        message = condition.message if condition is not None else "not decided"
        found.pods[each.metadata.name] = "" if each.spec.node_name else message
    for other in watched.list(ELASTIC_QUOTAS):
        if other.metadata.name not in BUILT_IN:
            found.quotas[other.metadata.name] = {key: _written(other, key) for key in (*WRITTEN, "used")}
    for event in json.loads(await watched.client.raw("GET", EVENTS_V1.path("default")))["items"]:
        about = event["regarding"]
        found.events.add((about["kind"], about["name"], event["type"], event["reason"]))
    return found


def _written(each: ElasticQuota, key: str) -> ResourceList:
    text = each.metadata.annotations.get(f"{PREFIX}/{key}", "{}")
    amounts = each.status.used if key == "used" else read_amounts(text)
    return {name: amount for name, amount in amounts.items() if amount}


async def settled(watched: Watched, expected: Callable[[], Outcome | None] | None) -> Outcome:
    """The outcome when it has not changed for a while; or, where something is ``expected``, when quotas are like that.

    ``expected`` returns None as long as it is not known.
    """
    clock = asyncio.get_running_loop().time
    seen, last, since = watched.changes, await outcome(watched), clock()
    end = since + _SETTLED
    while (now := clock()) < end:
        known = expected() if expected is not None else None
        if known is not None and last.quotas == known.quotas:
            return last
        if now - since > (_QUIET if expected is None else _QUIET_FOR_ORIGINAL):
            return last
        await asyncio.sleep(_LOOK)
        if watched.changes != seen:
            seen, found = watched.changes, await outcome(watched)
            if found != last:
                last, since = found, now
    return last


async def delete_if_there(client: KubeClient, kind: Kind[Any], name: str, namespace: str) -> None:
    """A scheduler that preempts, or collects garbage, may be faster."""
    try:
        await client.delete(kind, name, namespace, grace_period_seconds=0)
    except ApiStatusError as error:
        if not error.is_not_found:
            raise


async def clean(client: KubeClient) -> None:
    """Remove what a scenario has left, children before their parents."""
    for each in (await client.list(PODS, "default")).items:
        await delete_if_there(client, PODS, each.metadata.name, "default")
    for other in reversed((await client.list(ELASTIC_QUOTAS)).items):
        if other.metadata.name not in BUILT_IN:
            await client.delete(ELASTIC_QUOTAS, other.metadata.name, other.metadata.namespace)
    await asyncio.sleep(0.5)
    for event in (await client.list(EVENTS_V1, "default")).items:
        await delete_if_there(client, EVENTS_V1, event.metadata.name, "default")


async def play(watched: Watched, scenario: Scenario, expected: Callable[[], Outcome | None] | None = None) -> Outcome:
    """Run the scenario and clean up behind it."""
    try:
        for step in scenario.steps:
            await take(watched, step)
        return await settled(watched, expected)
    finally:
        await clean(watched.client)
