"""What taking in an object costs the scheduler, in this process: from the bytes of the API server's answer, through
client, informer and feed, to the state of the cluster and the queue.

Everything is as in the running program but the socket. ``node``, ``node_metric`` and ``running`` are objects of the
first lists (pods that share nothing, each on a node), ``pending`` and ``bound`` are events of the watch on pods:
replicas that want a node, and the confirmation of what was decided about them. Costs are CPU microseconds an object,
the least of several rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from asyncio import TaskGroup
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

import uvloop

from benchmarks import pod_mixes, stored_objects, workload
from koordinator.api.kinds import NAMESPACES, NODE_METRICS, NODES, PODS, Kind
from koordinator.api.meta import Object
from koordinator.api.modification import Modification
from koordinator.api.pod import Pod
from koordinator.base.clock import SystemClock
from koordinator.base.garbage_collection import collecting_rarely
from koordinator.base.metrics import Metrics
from koordinator.base.time_limits import TimeLimits
from koordinator.kube.client import KubeClient
from koordinator.kube.pooled_transport import ResponseStream
from koordinator.kube.request import Request
from koordinator.kube.sender import Sender
from koordinator.kube.transport import Stream
from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration import parse_configuration
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.plugins.table import BUILT_IN
from koordinator.scheduler.program import Scheduler

_PROFILE: Final = Path(__file__).parent / "scheduler_profile.yaml"
_HEAD: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_EMPTY_LIST: Final = b'{"metadata":{"resourceVersion":"1"},"items":[]}'
_PAGE: Final = 500
_PATIENCE: Final = 1000
_UNDER_WAY: Final = 32


class Responses:
    """Stands for a Sender that has all responses already; lists are given when they are released."""

    def __init__(self, pages: Mapping[str, Sequence[bytes]]) -> None:
        self._pages = pages
        self._released = {path: asyncio.Event() for path in pages}
        self._streams: dict[str, ResponseStream] = {}
        self._opened: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def release(self, kind: Kind[Any]) -> None:
        """Let the list of a kind be answered."""
        self._released[kind.path()].set()

    async def until_watched(self, kind: Kind[Any]) -> None:
        await self._opened[kind.path()].wait()

    async def send(self, kind: Kind[Any], lines: Sequence[bytes], per_read: int) -> None:
        """Let lines arrive on the watch of a kind, ``per_read`` at a time, each a chunk as the API server sends it."""
        stream = self._streams[kind.path()]
        for start in range(0, len(lines), per_read):
            stream.data_received(b"".join([b"%x\r\n%b\r\n" % (len(x), x) for x in lines[start : start + per_read]]))
            await asyncio.sleep(0)

    def once(self) -> Responses:
        return self

    def backlog(self) -> float:
        return 0.0

    async def call(self, request: Request) -> bytes:
        url = urlsplit(request.target)
        pages = self._pages.get(url.path)
        if pages is None:
            return _EMPTY_LIST
        await self._released[url.path].wait()
        (number,) = parse_qs(url.query).get("continue", ["0"])
        return pages[int(number)]

    async def stream(self, request: Request) -> Stream:
        path = urlsplit(request.target).path
        stream = self._streams[path] = ResponseStream(b"", request.target)
        stream.data_received(_HEAD)
        await stream.begin()
        self._opened[path].set()
        return stream

    async def close(self) -> None:
        """There is nothing to close."""


class NoEvents:
    """What the scheduler would tell users."""

    def pod_event(
        self,
        pod: Pod,
        event_type: str,
        reason: str,
        action: str,
        note: str,
        *,
        reporter: Pod | None = None,
        modification: Modification | None = None,
    ) -> None:
        """Nobody listens to it."""

    def object_event(
        self,
        scheduler_name: str,
        kind: Kind[Any],
        obj: Object,
        event_type: str,
        reason: str,
        action: str,
        note: str,
        *,
        modification: Modification | None = None,
    ) -> None:
        """Nor to this."""


@dataclass(frozen=True, slots=True)
class Objects:
    """As they are on the wire."""

    nodes: Sequence[bytes]
    metrics: Sequence[bytes]
    running: Sequence[bytes]
    pending: Sequence[bytes]
    bound: Sequence[bytes]

    @classmethod
    def make(cls, nodes: int, running: int, events: int) -> Objects:
        node_documents = [stored_objects.node(workload.node(number), number + 1) for number in range(nodes)]
        pods = [
            stored_objects.running_pod(document, 100_000 + number)
            for number, document in enumerate(pod_mixes.running(running, nodes))
        ]
        pending = [
            stored_objects.pending_pod(document, 1_000_000 + number)
            for number, document in enumerate(pod_mixes.equal(events))
        ]
        bound = [
            stored_objects.bound_pod(pod, node_documents[number % nodes]["metadata"]["name"], 2_000_000 + number)
            for number, pod in enumerate(pending)
        ]
        now = datetime.now(UTC)
        metrics = [
            stored_objects.node_metric(workload.node(number), workload.node_metric_status(number, now), number + 1)
            for number in range(nodes)
        ]
        return cls(
            stored_objects.pages("Node", node_documents, _PAGE),
            stored_objects.pages("NodeMetric", metrics, _PAGE),
            stored_objects.pages("Pod", pods, _PAGE),
            [stored_objects.watch_line("ADDED", "Pod", pod) for pod in pending],
            [stored_objects.watch_line("MODIFIED", "Pod", pod) for pod in bound],
        )


class Intake:
    """A scheduler that takes in what ``answers`` brings, and decides nothing."""

    def __init__(self, responses: Responses) -> None:
        clock = SystemClock()
        self.client = KubeClient(cast("Sender", responses), TimeLimits(clock), Random(1))
        view = ClusterView(NodeColumns())
        configuration = parse_configuration(_PROFILE.read_text(), _PROFILE.name)
        self.scheduler = Scheduler(
            self.client,
            NoEvents(),
            lambda view: build_profiles(configuration, BUILT_IN, view),
            make_pod_info,
            view,
            SchedulerMetrics(Metrics()),
            clock=clock,
            random=Random(1),
        )
        self._responses = responses

    async def list(self, kind: Kind[Any]) -> float:
        """CPU seconds until the first list of ``kind`` has been taken in."""
        (informer,) = (informer for informer in self.scheduler.informers if informer.kind is kind)
        started = time.process_time()
        self._responses.release(kind)
        await informer.wait_synced()
        return time.process_time() - started

    async def watch(self, lines: Sequence[bytes], per_read: int, queued: int) -> float:
        """CPU seconds until the events on pods have had their effect, so that so many are in the queue."""
        started = time.process_time()
        await self._responses.send(PODS, lines, per_read)
        for _ in range(_PATIENCE):
            if len(self.scheduler.queue) == queued:
                return time.process_time() - started
            await asyncio.sleep(0)
        raise RuntimeError("events were lost on their way")

    async def confirm(self, lines: Sequence[bytes], per_read: int) -> float:
        """CPU seconds until queue and state have learnt of bindings, of which only some are under way at once."""
        queue, state = self.scheduler.queue, self.scheduler.state
        names, spent = state.view.columns.names, 0.0
        for start in range(0, len(lines), _UNDER_WAY):
            some = lines[start : start + _UNDER_WAY]
            for number in range(start, start + len(some)):
                entry = queue.pop()
                assert entry is not None
                state.assume(entry.pod, names[number % len(names)])
            spent += await self.watch(some, per_read, len(queue) - len(some))
        return spent


async def measure(objects: Objects, per_read: int) -> dict[str, float]:
    """CPU seconds of all objects of each sort."""
    responses = Responses(
        {NODES.path(): objects.nodes, NODE_METRICS.path(): objects.metrics, PODS.path(): objects.running}
    )
    intake = Intake(responses)
    async with TaskGroup() as tasks:
        watching = tasks.create_task(intake.scheduler.watch())
        lists: dict[str, Kind[Any]] = {"node": NODES, "running": PODS, "node_metric": NODE_METRICS}
        # What happens at the start belongs to no object.
        await responses.until_watched(NAMESPACES)
        spent = {sort: await intake.list(kind) for sort, kind in lists.items()}
        await responses.until_watched(PODS)
        spent["pending"] = await intake.watch(objects.pending, per_read, len(objects.pending))
        spent["bound"] = await intake.confirm(objects.bound, per_read)
        watching.cancel()
    await intake.client.close()
    return spent


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000, help="nodes of the first list (default 1000)")
    parser.add_argument("--running", type=int, default=20_000, help="pods of the first list (default 20000)")
    parser.add_argument("--events", type=int, default=3000, help="pods that are watched (default 3000)")
    parser.add_argument("--per-read", type=int, default=4, help="events that arrive together (default 4)")
    parser.add_argument("--rounds", type=int, default=3, help="how often it is measured (default 3)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    objects = Objects.make(options.nodes, options.running, options.events)
    rounds = []
    for _ in range(options.rounds):
        with collecting_rarely():
            rounds.append(uvloop.run(measure(objects, options.per_read)))
        gc.collect()
    counts = {"node": options.nodes, "node_metric": options.nodes, "running": options.running}
    counts |= {"pending": options.events, "bound": options.events}
    report = {
        "benchmark": "intake_cost",
        "events_per_read": options.per_read,
        "microseconds": {
            sort: round(min(spent[sort] for spent in rounds) * 1e6 / count, 1) for sort, count in counts.items()
        },
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
