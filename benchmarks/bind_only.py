"""A client that makes no decision: it binds the pods that wait to one node after the other and writes their events.

What it reaches is what any scheduler with this API client could reach at best. It stands for election like a scheduler,
so that a benchmark can start all of them in the same way, and stays until it is killed.

usage: python -m benchmarks.bind_only KUBECONFIG
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import sys
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

import uvloop

from koordinator.api.kinds import NODES, PODS
from koordinator.api.pod import Pod
from koordinator.base.clock import SystemClock
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.interface import Client
from koordinator.kube.leader_election import LeaderElectionConfig, LeaderElector
from koordinator.scheduler.binding import binding_body
from koordinator.scheduler.pod_events import PodEvents

_NAME: Final = "koord-scheduler"
_CONCURRENCY: Final = 32


async def run(kubeconfig: str) -> None:
    clock, random = SystemClock(), Random()
    client = await connect(ClientOptions(kubeconfig=kubeconfig))
    try:
        broadcaster = EventBroadcaster(client, instance="bind-only", clock=clock, random=random)
        config = LeaderElectionConfig(_NAME, "koordinator-system", "bind-only")
        elector = LeaderElector(client, config, clock=clock, random=random)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(broadcaster.run(), name="events")
            await elector.run(lambda: bind_all(client, PodEvents(broadcaster, [_NAME])))
    finally:
        await client.close()


async def bind_all(client: Client, events: PodEvents) -> None:
    nodes = [node.metadata.name for node in (await client.list(NODES)).items]
    pods = iter((await client.list(PODS, field_selector="spec.nodeName=")).items)
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    targets = itertools.cycle(nodes)
    async with asyncio.TaskGroup() as workers:
        for _ in range(_CONCURRENCY):
            workers.create_task(_bind(client, events, pods, targets))
    await asyncio.Event().wait()


async def _bind(client: Client, events: PodEvents, pods: Iterator[Pod], targets: Iterator[str]) -> None:
    for pod in pods:
        metadata, target = pod.metadata, next(targets)
        body = binding_body(metadata.namespace, metadata.name, metadata.uid, target)
        await client.create(PODS, body, metadata.namespace, name=metadata.name, subresource="binding")
        note = f"Successfully assigned {metadata.namespace}/{metadata.name} to {target}"
        events.pod_event(pod, "Normal", "Scheduled", "Binding", note)


def main(arguments: Sequence[str] | None = None) -> int:
    (kubeconfig,) = sys.argv[1:] if arguments is None else arguments
    logging.basicConfig(level=logging.INFO)
    uvloop.run(run(kubeconfig))
    return 0


if __name__ == "__main__":
    sys.exit(main())
