"""What koord-scheduler spends on a pod: from the event that shows it, through the decision and the binding, to the
event that shows it bound; or, for a pod that fits nowhere, to the status that says so.

The profile is that of ``koord manifests``, and events are written as the program writes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Final

from benchmarks import pod_mixes, workload
from koordinator.api.kinds import (
    ELASTIC_QUOTAS,
    NODE_METRICS,
    NODES,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    RESERVATIONS,
    SERVICES,
    Kind,
)
from koordinator.api.manifests.installation import Installation, manifest_files
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.events import EventBroadcaster
from koordinator.scheduler.assembly import make_scheduler
from koordinator.scheduler.configuration import SchedulerConfiguration, parse_configuration
from koordinator.scheduler.cycle.failure_report import PodEvents
from koordinator.scheduler.options import parse_options
from koordinator.scheduler.program import Scheduler, SchedulerOptions
from tests.costs.call_counter import CallCounter
from tests.costs.figures import Cost
from tests.costs.scripted_api import Document, ScriptedApi

NODES_OF_MOST: Final = 200
MANY_NODES: Final = 2000
_CONFIGURATION: Final = "koord-scheduler-config.yaml"
_WARM_UP: Final = 50
_MEASURED: Final = 50
_WARM_UP_OF_MIXED: Final = 1000
"""Nearly every one of the 250 kinds of mixed pods has been placed by then."""
_BATCH_PRIORITY: Final = 5000
_GANG: Final = 5
_TURNS: Final = 100
"""Of the event loop in which everything has happened that was begun."""
_MOST_TURNS: Final = 20_000

Objects = Sequence[tuple[Kind[Any], Document]]


@dataclass(frozen=True)
class Shape:
    """``pods`` makes so many, the same in every run; ``objects`` are there before."""

    pods: Callable[[int], list[Document]]
    objects: Objects = ()
    nodes: int = NODES_OF_MOST
    fits: bool = True
    annotation: str = ""
    """Which all pods have when they are bound, so that they are what they are called."""
    warm_up: int = _WARM_UP
    """How many pods come first and are not counted."""


def _of_replica_set(count: int) -> list[Document]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}
    documents = pod_mixes.equal(count)
    for document in documents:
        document["metadata"]["ownerReferences"] = [owner]
    return documents


def _mixed(count: int) -> list[Document]:
    """With the priority that the API server gives a pod for the name of its class."""
    documents = pod_mixes.mixed(count)
    for document in documents:
        if "priorityClassName" in document["spec"]:
            document["spec"]["priority"] = _BATCH_PRIORITY
    return documents


def _of_gangs(count: int) -> list[Document]:
    return pod_mixes.in_gangs(count // _GANG, _GANG)


def _owners(count: int) -> list[Document]:
    """Each of them owns the Reservations of one of 50 teams."""
    return [document for document in pod_mixes.with_consumers(2 * count) if "team" in document["metadata"]["labels"]]


def _reservations() -> list[Document]:
    """With what the API server adds."""
    documents = pod_mixes.reservations(100)
    for document in documents:
        document["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        document["spec"]["ttl"] = "24h"
    return documents


def _too_large(count: int) -> list[Document]:
    documents = pod_mixes.equal(count)
    for document in documents:
        amounts = {"cpu": "1000", "memory": "1Gi"}
        document["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return documents


def _named(kind: Kind[Any], documents: Sequence[Document]) -> Objects:
    return [(kind, document) for document in documents]


_SELECTOR: Final = {"app": "equal"}
_BEHIND_A_SERVICE: Final[Objects] = [
    (REPLICA_SETS, {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": _SELECTOR}}}),
    (SERVICES, {"metadata": {"name": "web"}, "spec": {"selector": _SELECTOR}}),
]

SHAPES: Final[dict[str, Shape]] = {
    "equal pods": Shape(pod_mixes.equal),
    "equal pods, 2000 nodes": Shape(pod_mixes.equal, nodes=MANY_NODES),
    "different pods": Shape(pod_mixes.different),
    "mixed pods": Shape(_mixed, nodes=MANY_NODES, warm_up=_WARM_UP_OF_MIXED),
    "pods of a ReplicaSet behind a Service": Shape(_of_replica_set, _BEHIND_A_SERVICE),
    "gangs of five": Shape(
        _of_gangs,
        _named(POD_GROUPS, pod_mixes.pod_groups((_WARM_UP + _MEASURED) // _GANG, _GANG)),
        annotation="scheduling.koordinator.sh/bind-gang-group-id",
    ),
    "pods under quotas": Shape(pod_mixes.in_quotas, _named(ELASTIC_QUOTAS, pod_mixes.quotas())),
    "owners of Reservations": Shape(
        _owners, _named(RESERVATIONS, _reservations()), annotation="scheduling.koordinator.sh/reservation-allocated"
    ),
    "pods that fit nowhere": Shape(_too_large, fits=False),
}


def cost(shape: Shape) -> Cost:
    """Of a pod, the same in every run."""
    return asyncio.run(_cost(shape))


async def _cost(shape: Shape) -> Cost:
    counter = CallCounter()
    pods = shape.pods(shape.warm_up + _MEASURED)
    first, measured = pods[: shape.warm_up], pods[shape.warm_up :]
    async with running(shape) as api:
        await place(api, first, shape)
        shown = [api.prepared(PODS, document) for document in measured]
        with counter.counting():
            for event in shown:
                api.show(PODS, event)
            await _placed(api, measured, shape)
    if shape.annotation:
        assert all(shape.annotation in metadata.get("annotations", {}) for metadata in api.metadata(PODS))
    return Cost.of(counter.calls, _MEASURED)


@asynccontextmanager
async def running(shape: Shape) -> AsyncIterator[ScriptedApi]:
    """The API server of a scheduler that has seen all but the pods."""
    api, clock, stop = ScriptedApi(), ManualClock(), asyncio.Event()
    for number in range(shape.nodes):
        document = workload.node(number)
        api.put(NODES, document)
        metric = {"metadata": {"name": document["metadata"]["name"]}, "spec": {}}
        api.put(NODE_METRICS, {**metric, "status": workload.node_metric_status(number, clock.now())})
    for kind, document in shape.objects:
        api.put(kind, document)
    async with asyncio.TaskGroup() as tasks:
        events = EventBroadcaster(api, program="koord-scheduler", clock=clock, random=Random(1))
        scheduler = _scheduler(api, events, clock)
        background = [tasks.create_task(events.run()), tasks.create_task(scheduler.watch())]
        work = tasks.create_task(scheduler.schedule(stop))
        await _until(lambda: scheduler.synced)
        yield api
        stop.set()
        await work
        for task in background:
            task.cancel()


async def place(api: ScriptedApi, documents: Sequence[Document], shape: Shape) -> None:
    """Create the pods, and wait until they are bound, or have a status that says why not."""
    for document in documents:
        api.put(PODS, document)
    await _placed(api, documents, shape)


async def _placed(api: ScriptedApi, documents: Sequence[Document], shape: Shape) -> None:
    names = [document["metadata"]["name"] for document in documents]

    def is_done() -> bool:
        return all(name in api.bound if shape.fits else (PODS.plural, name) in api.patched for name in names)

    await _until(is_done)


async def _until(is_done: Callable[[], bool]) -> None:
    for _ in range(_MOST_TURNS):
        if is_done():
            break
        await asyncio.sleep(0)
    else:
        raise AssertionError("the scheduler does not come to an end")
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def _scheduler(api: ScriptedApi, events: EventBroadcaster, clock: ManualClock) -> Scheduler:
    configuration = _configuration()
    return make_scheduler(
        api,
        PodEvents(events, [profile.scheduler_name for profile in configuration.profiles]),
        configuration,
        parse_options([]),
        SchedulerOptions(),
        metrics=Metrics(),
        clock=clock,
        random=Random(1),
    )


@cache
def _configuration() -> SchedulerConfiguration:
    (text,) = [text for path, text in manifest_files(Installation()).items() if path.endswith(_CONFIGURATION)]
    return parse_configuration(text, _CONFIGURATION)
