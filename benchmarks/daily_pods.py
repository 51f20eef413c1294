"""The pods of a day on a large cluster: when each is created, how long it stays, and what became of it."""

from __future__ import annotations

import asyncio
import copy
import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks import pod_mixes
from benchmarks.soak_checks import Bookings
from koordinator.api.kinds import PODS
from koordinator.api.labels import QOS_CLASS
from koordinator.api.pod import Pod
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.informer import Informer
from koordinator.kube.interface import Client

NAMESPACE: Final = "default"
_QUIET: Final = 0.3
"""The rate at night, of that of an even day."""
_PEAKS: Final = ((10.0, 1.6), (15.0, 2.2), (21.5, 0.8))
"""Hours at which most is created, and their weights."""
_PEAK_HOURS: Final = 2.5
_DIFFERENT: Final = 5000
_CREATING: Final = 64
_DELETING: Final = 32
_RETRY_SECONDS: Final = 0.5
_TRIES: Final = 60


def arrivals(count: int, seconds: float) -> NDArray[np.float64]:
    """When each of ``count`` pods comes in a day that takes so many seconds: much in office hours, little at night."""
    hours = np.linspace(0.0, 24.0, 24 * 60 + 1)
    rate = np.full(hours.shape, _QUIET)
    for hour, weight in _PEAKS:
        rate += weight * np.exp(-(((hours - hour) / _PEAK_HOURS) ** 2))
    total = np.zeros(hours.shape)
    np.cumsum((rate[1:] + rate[:-1]) / 2, out=total[1:])
    shares = (np.arange(count) + 0.5) / count
    found: NDArray[np.float64] = np.interp(shares * total[-1], total, hours / 24.0 * seconds)
    return found


def documents(count: int) -> Iterator[dict[str, Any]]:
    """Of pods of 25 sizes, of which some want a zone or are spread over zones. There are no batch pods, since there
    is no agent whose reports would let nodes lend anything."""
    mix = [each for each in pod_mixes.mixed(min(2 * count, _DIFFERENT)) if QOS_CLASS not in each["metadata"]["labels"]]
    for number in range(count):
        document = copy.deepcopy(mix[number % len(mix)])
        document["metadata"]["name"] = f"pod-{number:06d}"
        document["spec"]["terminationGracePeriodSeconds"] = 0
        yield {"apiVersion": PODS.api_version, "kind": PODS.name, **document}


@dataclass
class Seen:
    """What the day has come to so far. Times are seconds of the event loop."""

    created: int = 0
    refused: int = 0
    """Pods that could not be created however often it was tried."""
    bound: int = 0
    gone: int = 0
    late_by: float = 0.0
    """How far the creation of pods was behind at most: the API server or this process has had too little CPU."""
    most_pods: int = 0
    create_seconds: list[float] = field(default_factory=list)
    bind_seconds: list[float] = field(default_factory=list)
    """From the request that creates a pod to its binding as a watcher sees it."""
    bound_at: list[float] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        return self.created - self.bound


class Day:
    """Creates, watches and deletes; each pod is deleted when it has had its node for ``life`` seconds."""

    def __init__(self, client: Client, bookings: Bookings, *, count: int, seconds: float, life: float) -> None:
        self._client = client
        self._bookings = bookings
        self._count = count
        self._arrivals = arrivals(count, seconds)
        self._life = life
        self._asked: dict[str, float] = {}
        """Pods that wait for a node -> when they were requested."""
        self._due: list[tuple[float, str]] = []
        self._progress = 0.0
        self._pods = Informer(client, PODS, namespace=NAMESPACE)
        self._pods.add_handlers(
            on_add=lambda pod, initial: self._changed(pod),
            on_update=lambda old, new: self._changed(new),
            on_delete=self._gone,
        )
        self.seen = Seen()

    async def run(self, patience: float) -> None:
        """Until every pod has come and gone, or for ``patience`` seconds after the last creation nothing happens."""
        loop = asyncio.get_running_loop()
        self._progress = started = loop.time()
        work = iter(zip(self._arrivals, documents(self._count), strict=True))

        async def create() -> None:
            for moment, document in work:
                await asyncio.sleep(max(0.0, started + moment - loop.time()))
                self.seen.late_by = max(self.seen.late_by, loop.time() - started - moment)
                await self._create(document)

        async with asyncio.TaskGroup() as tasks:
            watching = [tasks.create_task(self._delete(), name="delete") for _ in range(_DELETING)]
            watching.append(tasks.create_task(self._pods.run(), name="pods"))
            await self._pods.wait_synced()
            async with asyncio.TaskGroup() as creating:
                for _ in range(_CREATING):
                    creating.create_task(create(), name="create")
            self._progress = loop.time()
            await self._until_gone(max(patience, self._life))
            for task in watching:
                task.cancel()

    async def _until_gone(self, patience: float) -> None:
        loop = asyncio.get_running_loop()
        while self.seen.gone < self.seen.created and loop.time() - self._progress < patience:  # noqa: ASYNC110
            await asyncio.sleep(1.0)

    async def _create(self, document: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        name, asked = document["metadata"]["name"], loop.time()
        self._asked[name] = asked
        for _ in range(_TRIES):
            try:
                await self._client.create(PODS, document, NAMESPACE)
            except ApiStatusError as error:
                if error.is_already_exists:
                    break
            except KubeError:
                pass
            else:
                break
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            self._asked.pop(name, None)
            self.seen.refused += 1
            return
        self.seen.created += 1
        self.seen.most_pods = max(self.seen.most_pods, len(self._pods))
        self.seen.create_seconds.append(loop.time() - asked)

    def _changed(self, pod: Pod) -> None:
        now, name = asyncio.get_running_loop().time(), pod.metadata.name
        self._progress = now
        self._bookings.seen(pod)
        if pod.spec.node_name and (asked := self._asked.pop(name, None)) is not None:
            self.seen.bound += 1
            self.seen.bind_seconds.append(now - asked)
            self.seen.bound_at.append(now)
            heapq.heappush(self._due, (now + self._life, name))

    def _gone(self, pod: Pod) -> None:
        self._progress = asyncio.get_running_loop().time()
        self._bookings.gone(pod)
        self.seen.gone += 1

    async def _delete(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._due or self._due[0][0] > loop.time():
                await asyncio.sleep(0.2)
                continue
            _, name = heapq.heappop(self._due)
            try:
                await self._client.delete(PODS, name, NAMESPACE, grace_period_seconds=0)
            except ApiStatusError as error:
                if not error.is_not_found:
                    heapq.heappush(self._due, (loop.time() + _RETRY_SECONDS, name))
            except KubeError:
                heapq.heappush(self._due, (loop.time() + _RETRY_SECONDS, name))


def percentile(values: list[float], share: float) -> float:
    """The least of the values that so many are not above. NaN of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(len(ordered) * share) - 1)] if ordered else math.nan


def best_minute(moments: list[float]) -> float:
    """Bindings a second in the minute that had most."""
    ordered, first, most = sorted(moments), 0, 0
    for last, moment in enumerate(ordered):
        while moment - ordered[first] > 60:
            first += 1
        most = max(most, last - first + 1)
    return round(most / 60, 1)
