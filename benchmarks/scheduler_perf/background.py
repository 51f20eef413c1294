"""What goes on beside the operations that follow: churn, and deletions at a rate."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence

from benchmarks.scheduler_perf.kind_table import kind_of
from benchmarks.scheduler_perf.operations import Churn, DeletePods
from benchmarks.scheduler_perf.templates import Document
from koordinator.api.kinds import PODS
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client

Sleep = Callable[[float], Awaitable[object]]
"""Waits for so many seconds."""


async def churn(client: Client, operation: Churn, documents: Sequence[Document], namespace: str, sleep: Sleep) -> None:
    """Create one of each document at every tick; to recreate, delete those of ``number`` ticks ago instead."""
    interval = (operation.interval_milliseconds or 500) / 1000
    names: dict[tuple[int, int], str] = {}
    for tick in itertools.count():
        if operation.mode == "create" and operation.number and tick == operation.number:
            return
        await sleep(interval)
        for which, document in enumerate(documents):
            kind = kind_of(document)
            where = namespace if kind.namespaced else ""
            place = (which, tick % operation.number) if operation.mode == "recreate" else (which, tick)
            name = names.pop(place, None)
            if name is not None:
                await client.delete(kind, name, where)
                continue
            created = await client.create(kind, document, where)
            if operation.mode == "recreate":
                names[place] = created.metadata.name


async def delete_pods(client: Client, operation: DeletePods, sleep: Sleep) -> None:
    """Delete those pods of the namespace that are there now and have the labels."""
    selector = ",".join(f"{name}={value}" for name, value in (operation.label_selector or {}).items())
    if not operation.delete_pods_per_second:
        await client.delete_collection(PODS, operation.namespace, label_selector=selector)
        return
    for pod in (await client.list(PODS, operation.namespace, label_selector=selector)).items:
        await sleep(1 / operation.delete_pods_per_second)
        try:
            await client.delete(PODS, pod.metadata.name, operation.namespace)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
