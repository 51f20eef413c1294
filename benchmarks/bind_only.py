"""A client that makes no decision: it binds the pods that wait to one node after the other and writes their events.

It has many pods under way at a time. Of each, it writes the event before it binds the next one; or, with ``later``,
hands the event to the broadcaster that schedulers use, which writes it when bindings leave room. That is what any
scheduler with this API client could reach at best. It stands for election like a scheduler, so that a benchmark can
start all of them in the same way, and stays until it is killed.

usage: python -m benchmarks.bind_only KUBECONFIG first|later
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import sys
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final, Protocol

import uvloop

from koordinator.api.kinds import NODES, PODS
from koordinator.api.pod import Pod
from koordinator.base.clock import Clock, SystemClock
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.event_series import EVENTS_V1, EventEntry, EventKey, event_name, reference_to
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.interface import Client
from koordinator.kube.leader_election import LeaderElectionConfig, LeaderElector
from koordinator.scheduler.binding.binding_cycle import PodBinding
from koordinator.scheduler.cycle.failure_report import PodEvents

_NAME: Final = "koord-scheduler"
_INSTANCE: Final = "bind-only"
_CONCURRENCY: Final = 32


class Reporter(Protocol):
    async def report(self, pod: Pod, note: str) -> None:
        """See to it that the pod's event is written."""


class First:
    """Writes each event at once and waits for the response."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._numbers = itertools.count()

    async def report(self, pod: Pod, note: str) -> None:
        now = self._clock.now()
        key = EventKey("Normal", "Binding", "Scheduled", _NAME, reference_to(PODS, pod), None)
        name = event_name(pod.metadata.name, int(now.timestamp() * 1e9) + next(self._numbers))
        entry = EventEntry(key, name, pod.metadata.namespace, note, now, True, now, now)
        await self._client.create(EVENTS_V1, entry.encoded(_INSTANCE), entry.namespace)


class Later:
    """Leaves the events to a broadcaster."""

    def __init__(self, events: PodEvents) -> None:
        self._events = events

    async def report(self, pod: Pod, note: str) -> None:
        self._events.pod_event(pod, "Normal", "Scheduled", "Binding", note)


async def run(kubeconfig: str, when: str) -> None:
    clock, random = SystemClock(), Random()
    client = await connect(ClientOptions(kubeconfig=kubeconfig))
    try:
        broadcaster = EventBroadcaster(client, instance=_INSTANCE, clock=clock, random=random)
        reporter = First(client, clock) if when == "first" else Later(PodEvents(broadcaster, [_NAME]))
        done = asyncio.Event()
        broadcaster.give_way_while(lambda: not done.is_set())
        config = LeaderElectionConfig(_NAME, "koordinator-system", _INSTANCE)
        elector = LeaderElector(client, config, clock=clock, random=random)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(broadcaster.run(), name="events")
            await elector.run(lambda: bind_all(client, reporter, done))
    finally:
        await client.close()


async def bind_all(client: Client, reporter: Reporter, done: asyncio.Event) -> None:
    nodes = [node.metadata.name for node in (await client.list(NODES)).items]
    pods = iter((await client.list(PODS, field_selector="spec.nodeName=")).items)
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    targets = itertools.cycle(nodes)
    async with asyncio.TaskGroup() as workers:
        for _ in range(_CONCURRENCY):
            workers.create_task(_bind(client, reporter, pods, targets))
    done.set()
    await asyncio.Event().wait()


async def _bind(client: Client, reporter: Reporter, pods: Iterator[Pod], targets: Iterator[str]) -> None:
    for pod in pods:
        metadata, target = pod.metadata, next(targets)
        body = PodBinding(metadata.namespace, metadata.name, metadata.uid, target).body()
        await client.create(PODS, body, metadata.namespace, name=metadata.name, subresource="binding")
        await reporter.report(pod, f"Successfully assigned {metadata.namespace}/{metadata.name} to {target}")


def main(arguments: Sequence[str] | None = None) -> int:
    kubeconfig, when = sys.argv[1:] if arguments is None else arguments
    logging.basicConfig(level=logging.INFO)
    uvloop.run(run(kubeconfig, when))
    return 0


if __name__ == "__main__":
    sys.exit(main())
