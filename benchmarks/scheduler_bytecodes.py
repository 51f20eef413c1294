"""What a pod costs koord-scheduler, in bytecodes by stage, in one process without sockets: from the bytes of the watch
that show the pod to those that show it bound.

Everything is as in the running program but the socket and the clock, which stands still, so that every run counts the
same. The profile is the chart's, and nothing in the cluster is for gangs, quotas, Reservations or devices. A function
that is no stage of its own belongs to that of its caller. ``--functions`` names those that take the most.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
from asyncio import TaskGroup
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from types import FrameType
from typing import Any, Final, cast
from urllib.parse import urlsplit

import uvloop

from benchmarks import pod_mixes, stored_objects, workload
from benchmarks.intake_cost import Responses
from koordinator.api.kinds import NODE_METRICS, NODES, PODS
from koordinator.api.manifests.installation import Installation, manifest_files
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.time_limits import TimeLimits
from koordinator.kube.client import KubeClient
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.request import Request
from koordinator.kube.sender import Sender
from koordinator.kube.transport import Stream
from koordinator.scheduler.assembly import make_scheduler
from koordinator.scheduler.configuration import parse_configuration
from koordinator.scheduler.cycle.failure_report import PodEvents
from koordinator.scheduler.options import parse_options
from koordinator.scheduler.program import Scheduler, SchedulerOptions

_CONFIGURATION: Final = "koord-scheduler-config.yaml"
_PAGE: Final = 500
_PER_READ: Final = 4
"""How many events of pods arrive together."""
_MOST_TURNS: Final = 100_000
_BATCH_PRIORITY: Final = 5000
_FINISHED: Final = "phase%21%3DRunning"
"""In the field selector of the watch of pods that have finished."""

_LOOP: Final = "event loop"
_NOT_COUNTED: Final = "the benchmark itself"
_DECISION: Final = "decision, without plugins"
_PLUGINS: Final = "plugins in the decision"
_BINDING: Final = "binding"
_STAGES: Final = (
    ("koordinator.scheduler.cycle.loop:SchedulingLoop._finished", _BINDING),
    ("koordinator.scheduler.cycle.failure_report:PodEvents", "Scheduled events"),
    ("koordinator.kube.events", "Scheduled events"),
    ("koordinator.kube.request_slots", _BINDING),
    ("koordinator.kube.slot_workers", _BINDING),
    ("koordinator.kube.informer", "decoding, informer"),
    ("koordinator.kube.watch", "decoding, informer"),
    ("koordinator.kube.pooled_transport", "decoding, informer"),
    ("koordinator.kube.reflector", "decoding, informer"),
    ("koordinator.scheduler.watch.", "cluster state, event handlers"),
    ("koordinator.scheduler.engine.cluster_state", "cluster state, event handlers"),
    ("koordinator.scheduler.queue.", "queue"),
    ("koordinator.scheduler.cycle.loop:SchedulingLoop._slice", _DECISION),
    ("koordinator.scheduler.cycle.loop:SchedulingLoop._step", _DECISION),
    ("koordinator.scheduler.cycle.loop:SchedulingLoop.run", _DECISION),
    ("koordinator.scheduler.binding.", _BINDING),
    ("koordinator.scheduler.cycle.measurement:SchedulerMonitor", "metrics"),
    ("koordinator.base.instruments", "metrics"),
    ("koordinator.base.clock", _NOT_COUNTED),
    ("benchmarks.", _NOT_COUNTED),
    ("__main__:", _NOT_COUNTED),
)
"""The beginnings of ``module:function`` with their stages; the first that fits."""
_OF_PLUGINS: Final = "koordinator.scheduler.plugins."

Trace = Callable[[FrameType, str, Any], Any]


class BytecodeCounter:
    """``counting`` around a block counts it; ``counts`` is by stage and ``module:function``."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._traces: dict[tuple[str, str], Trace] = {}
        self._stage_of: dict[Trace, str] = {}
        self._names: dict[object, str] = {}
        self._own_stages: dict[str, str | None] = {}

    @contextmanager
    def counting(self) -> Iterator[None]:
        gc.disable()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(None)
            gc.enable()

    def _called(self, frame: FrameType, event: str, argument: Any) -> Trace | None:
        code = frame.f_code
        name = self._names.get(code)
        if name is None:
            name = self._names[code] = f"{frame.f_globals.get('__name__', '')}:{code.co_qualname}"
            self._own_stages[name] = next((stage for start, stage in _STAGES if name.startswith(start)), None)
        caller = frame.f_back
        outer = self._stage_of.get(cast("Trace", caller.f_trace), _LOOP) if caller is not None else _LOOP
        stage = self._own_stages[name] or outer
        if stage == _DECISION and name.startswith(_OF_PLUGINS):
            stage = _PLUGINS
        frame.f_trace_opcodes, frame.f_trace_lines = stage != _NOT_COUNTED, False
        return self._trace(stage, name)

    def _trace(self, stage: str, name: str) -> Trace:
        found = self._traces.get((stage, name))
        if found is None:
            counts, key = self.counts, (stage, name)

            def trace(frame: FrameType, event: str, argument: Any) -> Trace:
                if event == "opcode":
                    counts[key] += 1
                return trace

            found = self._traces[key] = trace
            self._stage_of[trace] = stage
        return found


class Answers(Responses):
    """Answers each request in the next turn of the event loop, and shows every pod that is bound with its node."""

    def __init__(self, nodes: Sequence[bytes], metrics: Sequence[bytes]) -> None:
        super().__init__({NODES.path(): nodes, NODE_METRICS.path(): metrics})
        for kind in (NODES, NODE_METRICS):
            self.release(kind)
        self.bound = 0
        self._pods: dict[str, Any] = {}
        self._version = 5_000_000

    async def create(self, documents: Sequence[Any]) -> None:
        for start in range(0, len(documents), _PER_READ):
            some = documents[start : start + _PER_READ]
            for document in some:
                self._pods[document["metadata"]["name"]] = document
            lines = [stored_objects.watch_line("ADDED", "Pod", document) for document in some]
            await self.send(PODS, lines, _PER_READ)

    async def stream(self, request: Request) -> Stream:
        of_pods, stream = self._streams.get(PODS.path()), await super().stream(request)
        if of_pods is not None and _FINISHED in request.target:
            # That of pods that have finished, which there are none of, has the same path.
            self._streams[PODS.path()] = of_pods
        return stream

    async def call(self, request: Request) -> bytes:
        await asyncio.sleep(0)
        path = urlsplit(request.target).path
        if not path.endswith("/binding"):
            return await super().call(request) if request.method == "GET" else request.body or b"{}"
        name, node = path.rsplit("/", 2)[1], json.loads(request.body or b"")["target"]["name"]
        self.bound += 1
        self._version += 1
        shown = stored_objects.bound_pod(self._pods[name], node, self._version)
        await self.send(PODS, [stored_objects.watch_line("MODIFIED", "Pod", shown)], 1)
        return b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'


def _nodes(count: int, clock: ManualClock) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """The pages of the lists of Nodes and NodeMetrics."""
    documents = [workload.node(number) for number in range(count)]
    nodes = [stored_objects.node(document, number + 1) for number, document in enumerate(documents)]
    statuses = [workload.node_metric_status(number, clock.now()) for number in range(count)]
    metrics = [
        stored_objects.node_metric(document, status, number + 1)
        for number, (document, status) in enumerate(zip(documents, statuses, strict=True))
    ]
    return stored_objects.pages("Node", nodes, _PAGE), stored_objects.pages("NodeMetric", metrics, _PAGE)


def _pods(mix: str, count: int) -> list[Any]:
    documents = pod_mixes.mixed(count) if mix == "mixed" else pod_mixes.equal(count)
    pods = [stored_objects.pending_pod(document, 1_000_000 + number) for number, document in enumerate(documents)]
    for pod in pods:
        if "priorityClassName" in pod["spec"]:
            # What the API server gives a pod for the name of its class.
            pod["spec"]["priority"] = _BATCH_PRIORITY
    return pods


def _scheduler(client: KubeClient, events: EventBroadcaster, clock: ManualClock) -> Scheduler:
    (text,) = [text for path, text in manifest_files(Installation()).items() if path.endswith(_CONFIGURATION)]
    configuration = parse_configuration(text, _CONFIGURATION)
    names = [profile.scheduler_name for profile in configuration.profiles]
    return make_scheduler(
        client,
        PodEvents(events, names),
        configuration,
        parse_options([]),
        SchedulerOptions(),
        metrics=Metrics(),
        clock=clock,
        random=Random(1),
    )


async def count(mix: str, nodes: int, warm_up: int, measured: int) -> Counter[tuple[str, str]]:
    """Bytecodes of all the measured pods together, by stage and function."""
    clock, counter = ManualClock(), BytecodeCounter()
    answers = Answers(*_nodes(nodes, clock))
    client = KubeClient(cast("Sender", answers), TimeLimits(clock), Random(1))
    pods = _pods(mix, warm_up + measured)
    async with TaskGroup() as tasks:
        events = EventBroadcaster(client, clock=clock, random=Random(1))
        scheduler, stop = _scheduler(client, events, clock), asyncio.Event()
        background = [tasks.create_task(events.run()), tasks.create_task(scheduler.watch())]
        work = tasks.create_task(scheduler.schedule(stop))
        await _until(lambda: scheduler.synced)
        await answers.create(pods[:warm_up])
        await _until(lambda: answers.bound == warm_up and not scheduler.state.assumed_count)
        with counter.counting():
            await answers.create(pods[warm_up:])
            await _until(lambda: answers.bound == len(pods) and not scheduler.state.assumed_count)
        stop.set()
        await work
        for task in background:
            task.cancel()
    return counter.counts


async def _until(is_done: Callable[[], bool]) -> None:
    for _ in range(_MOST_TURNS):
        if is_done():
            return
        await asyncio.sleep(0)
    raise RuntimeError("the scheduler does not come to an end")


def report(counts: Counter[tuple[str, str]], pods: int, functions: int) -> dict[str, Any]:
    stages: Counter[str] = Counter()
    for (stage, _), found in counts.items():
        stages[stage] += found
    document: dict[str, Any] = {stage: round(found / pods) for stage, found in stages.most_common()}
    document["all"] = round(counts.total() / pods)
    if functions:
        most = counts.most_common(functions)
        document["functions"] = {f"{stage}: {name}": round(found / pods, 1) for (stage, name), found in most}
    return document


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", choices=("equal", "mixed"), default="equal", help="default equal")
    parser.add_argument("--nodes", type=int, help="default 500, and 1000 for mixed pods")
    parser.add_argument("--warm-up", type=int, help="pods before those that count (default 200, mixed 1000)")
    parser.add_argument("--measured", type=int, default=400, help="pods that count (default 400)")
    parser.add_argument("--functions", type=int, default=0, help="how many functions to name (default none)")
    options = parser.parse_args(arguments)
    is_mixed = options.pods == "mixed"
    nodes = options.nodes or (1000 if is_mixed else 500)
    warm_up = options.warm_up if options.warm_up is not None else 1000 if is_mixed else 200
    counts = uvloop.run(count(options.pods, nodes, warm_up, options.measured))
    document = report(counts, options.measured, options.functions)
    print(json.dumps({"benchmark": "scheduler_bytecodes", "pods": options.pods, "per_pod": document}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
