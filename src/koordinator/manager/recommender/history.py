"""Usage from before a Recommendation was created, read from a Prometheus server when there is no checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from string import Template
from typing import Final, NamedTuple

from koordinator.base.clock import Clock
from koordinator.base.durations import format_duration
from koordinator.kube.prometheus import PrometheusError, PrometheusServer, Series
from koordinator.kube.reconciler import Reconcilers
from koordinator.manager.recommender.options import RecommenderOptions
from koordinator.manager.recommender.tracked import Tracked

logger = logging.getLogger(__name__)

_SAMPLE_MINUTES: Final = 60
_ATTEMPTS: Final = 3
_PAUSES: Final = (15.0, 60.0)
"""The shortest and the longest before a query is repeated, in seconds."""
_DEADLINE: Final = 150.0
"""Seconds: two requests."""
_SUFFIXES: Final[Mapping[str, str]] = {
    "Deployment": "-[a-z0-9]+-[a-z0-9]+",
    "ReplicaSet": "-[a-z0-9]+",
    "DaemonSet": "-[a-z0-9]+",
    "ReplicationController": "-[a-z0-9]+",
    "Job": "-[a-z0-9]+",
    "StatefulSet": "-[0-9]+",
    "CronJob": "-[0-9]+-[a-z0-9]+",
}
"""Kind of a workload -> a pattern of what its pods' names have after the workload's: the pods that had the usage are
gone, so that their labels are not known."""
_REPLICA: Final = "history of "


@dataclass(slots=True)
class _Wanted:
    tracked: Tracked
    is_requested: bool = False
    attempts: int = 0


class _Sample(NamedTuple):
    pod: str
    container: str
    at: datetime
    value: float


class HistoryLoader:
    """Loads the history of one Recommendation after the other. ``finished`` is called after each."""

    def __init__(
        self, options: RecommenderOptions, clock: Clock, reconcilers: Reconcilers, finished: Callable[[], None]
    ) -> None:
        self._options = options
        self._history = options.history
        self._clock = clock
        self._finished = finished
        self._server = PrometheusServer(
            self._history.prometheus_address, clock, self._history.token_file, self._history.ca_file
        )
        self._wanted: dict[str, _Wanted] = {}
        """By the UID of the Recommendation."""
        self._reconciler = reconcilers.make(
            "recommender-history", self._reconcile, lambda: (), deadline=_DEADLINE, pauses=_PAUSES
        )

    def want(self, tracked: Tracked) -> None:
        """The Recommendation is new and has no checkpoint; its history is requested once its pods are known."""
        if self._history.prometheus_address:
            tracked.is_fetching_history = True
            self._wanted[tracked.recommendation.metadata.uid] = _Wanted(tracked)

    def request(self, tracked: Tracked) -> None:
        """Load the history, if it is wanted."""
        wanted = self._wanted.get(tracked.recommendation.metadata.uid)
        if wanted is not None and not wanted.is_requested:
            wanted.is_requested = True
            self._reconciler.add(tracked.recommendation.metadata.uid)

    async def run(self) -> None:
        """Work until cancelled; may be called again when this replica leads once more."""
        self._wanted.clear()
        await self._reconciler.run()

    async def _reconcile(self, uid: str) -> None:
        """Raises PrometheusError, to be called again after a pause, before the last attempt."""
        wanted = self._wanted[uid]
        wanted.attempts += 1
        tracked = wanted.tracked
        try:
            cpu = await self._query(self._history.cpu_query, tracked)
            memory = await self._query(self._history.memory_query, tracked)
        except PrometheusError as error:
            if wanted.attempts < _ATTEMPTS:
                raise
            logger.warning("recommender: %s begins without history: %s", tracked.key, error)
        else:
            self._feed(tracked, cpu, memory)
        del self._wanted[uid]
        tracked.is_fetching_history = False
        self._finished()

    async def _query(self, query: str, tracked: Tracked) -> list[_Sample]:
        """Raises PrometheusError."""
        end, step = self._clock.now(), self._history.step.total_seconds()
        filled = Template(query).safe_substitute(
            namespace=tracked.recommendation.metadata.namespace,
            pods=pods_pattern(tracked),
            step=format_seconds(step),
        )
        start = (end - self._history.length).timestamp()
        found = await self._server.query_range(filled, start, end.timestamp(), step)
        return [sample for series in found for sample in _samples(series)]

    def _feed(self, tracked: Tracked, cpu: list[_Sample], memory: list[_Sample]) -> None:
        """Add the samples in the order of their times. One sample stands for all minutes of its step."""
        options, minutes = self._options.model, max(round(self._history.step.total_seconds() / _SAMPLE_MINUTES), 1)
        offset = tracked.time.offset
        requests = {each.name: each.cpu_request for pod in tracked.pods for each in pod.containers}
        for each in sorted(cpu, key=lambda sample: sample.at):
            model = tracked.model(each.container, options)
            request = requests.get(each.container, 0.0)
            if model.add_cpu(_REPLICA + each.pod, each.value, each.at + offset, request):
                model.history.count += minutes - 1
        for each in sorted(memory, key=lambda sample: sample.at):
            tracked.model(each.container, options).add_memory(_REPLICA + each.pod, each.value, each.at + offset)
        for model in tracked.models.values():
            model.replicas = {uid: it for uid, it in model.replicas.items() if not uid.startswith(_REPLICA)}
        logger.info(
            "recommender: the history of %s of %s: %d samples of CPU, %d of memory",
            *(tracked.key, format_duration(self._history.length), len(cpu), len(memory)),
        )


def pods_pattern(tracked: Tracked) -> str:
    """A regular expression for the names of the pods: those of a workload by its name, else those that exist now."""
    workload = tracked.recommendation.spec.target.workload
    if workload is not None and workload.kind in _SUFFIXES:
        return _escaped(workload.name) + _SUFFIXES[workload.kind]
    return "|".join(sorted(_escaped(pod.metadata.name) for pod in tracked.pods))


def _escaped(name: str) -> str:
    """Of the characters of a name, dots alone are special. The backslash is escaped once more in a query's string."""
    return name.replace(".", r"\\.")


def format_seconds(seconds: float) -> str:
    """A duration as Prometheus writes it."""
    return f"{seconds:.0f}s"


def _samples(series: Series) -> Iterator[_Sample]:
    """None of a series that is of no container."""
    pod, container = series.labels.get("pod"), series.labels.get("container")
    if pod and container:
        for at, value in series.samples:
            yield _Sample(pod, container, at, value)
