"""Usage from before a Recommendation was created, read from a Prometheus server when there is no checkpoint."""

from __future__ import annotations

import json
import logging
import math
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Any, Final, NamedTuple

import aiohttp

from koordinator.base.clock import Clock
from koordinator.base.durations import format_duration
from koordinator.base.errors import KoordinatorError
from koordinator.kube.errors import CredentialError
from koordinator.kube.reconciler import Reconcilers
from koordinator.kube.tls import RotatingContext, TLSSettings
from koordinator.manager.recommender.options import RecommenderOptions
from koordinator.manager.recommender.tracked import Tracked

logger = logging.getLogger(__name__)

_MOST_BYTES: Final = 64 << 20
_REQUEST_SECONDS: Final = 60.0
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


class HistoryError(KoordinatorError):
    """The Prometheus server could not be queried, or its response cannot be read."""


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
        self._tls: RotatingContext | None = None
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
        """Raises HistoryError, to be called again after a pause, before the last attempt."""
        wanted = self._wanted[uid]
        wanted.attempts += 1
        tracked = wanted.tracked
        try:
            cpu = await self._query(self._history.cpu_query, tracked)
            memory = await self._query(self._history.memory_query, tracked)
        except HistoryError as error:
            if wanted.attempts < _ATTEMPTS:
                raise
            logger.warning("recommender: %s begins without history: %s", tracked.key, error)
        else:
            self._feed(tracked, cpu, memory)
        del self._wanted[uid]
        tracked.is_fetching_history = False
        self._finished()

    async def _query(self, query: str, tracked: Tracked) -> list[_Sample]:
        """Raises HistoryError."""
        end = self._clock.now()
        step = self._history.step
        parameters = {
            "query": Template(query).safe_substitute(
                namespace=tracked.recommendation.metadata.namespace,
                pods=pods_pattern(tracked),
                step=format_seconds(step.total_seconds()),
            ),
            "start": f"{(end - self._history.length).timestamp():.0f}",
            "end": f"{end.timestamp():.0f}",
            "step": f"{step.total_seconds():.0f}",
        }
        url = f"{self._history.prometheus_address.rstrip('/')}/api/v1/query_range"
        try:
            timeout = aiohttp.ClientTimeout(total=_REQUEST_SECONDS)
            tls, headers = self._server_trust(), self._headers()
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.post(url, data=parameters, allow_redirects=False, ssl=tls) as response,
            ):
                body = bytearray()
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > _MOST_BYTES:
                        raise HistoryError(f"{url}: the response has more than {_MOST_BYTES >> 20} MiB")
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError, CredentialError) as error:
            raise HistoryError(f"{url}: {error or type(error).__name__}") from error
        return list(_samples(url, status, bytes(body)))

    def _server_trust(self) -> ssl.SSLContext:
        """Raises CredentialError. To read the authorities of a machine takes 20 ms, too long for each query."""
        if self._tls is None:
            self._tls = RotatingContext(TLSSettings(authority_file=self._history.ca_file), self._clock)
        self._tls.refresh()
        return self._tls.context

    def _headers(self) -> dict[str, str]:
        """Raises OSError, and HistoryError for what is no token."""
        path = self._history.token_file
        if not path:
            return {}
        token = Path(path).read_bytes().strip().decode("ascii", "replace")
        if not token.isascii() or not token.isprintable() or not token:
            raise HistoryError(f"{path}: this is no token: one line of ASCII characters is")
        return {"Authorization": f"Bearer {token}"}

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


def _samples(url: str, status: int, body: bytes) -> Iterator[_Sample]:
    """The samples of a range query's matrix. Raises HistoryError."""
    try:
        document = json.loads(body)
        if document["status"] != "success":
            raise HistoryError(f"{url}: {document.get('errorType')}: {document.get('error')}")
        series = document["data"]["result"]
        for each in series:
            yield from _of_series(each)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        excerpt = body[:200].decode("utf-8", "replace")
        raise HistoryError(f"{url}: status {status}, not the result of a range query: {excerpt!r}") from error


def _of_series(series: Mapping[str, Any]) -> Iterator[_Sample]:
    labels = series["metric"]
    pod, container = labels.get("pod"), labels.get("container")
    if not pod or not container:
        return
    for at, text in series["values"]:
        value = float(text)
        if math.isfinite(value):
            yield _Sample(pod, container, datetime.fromtimestamp(at, UTC), value)
