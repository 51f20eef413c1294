"""Where samples of usage come from: the metrics API (metrics.k8s.io), or the NodeMetrics that node agents report."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, WireStruct
from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.base.clock import Clock
from koordinator.base.yielding import CooperativeYielding
from koordinator.kube.errors import KubeError
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.manager.recommender.observed_pods import ObservedContainer
from koordinator.manager.recommender.options import AUTO, METRICS_API, NODE_METRIC
from koordinator.manager.trimmed_objects import facts_of, trimmed_node_reports

logger = logging.getLogger(__name__)

_NANO: Final = 10**9
_OLDEST_REPORT: Final = timedelta(minutes=15)


class _ContainerMetrics(WireStruct):
    name: str = ""
    usage: ResourceList = {}


class PodMetrics(Object):
    """metrics.k8s.io PodMetrics: what the containers of a pod use."""

    timestamp: datetime | None = None
    containers: Sequence[_ContainerMetrics] = ()


POD_METRICS: Final = Kind("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", PodMetrics)


@dataclass(frozen=True, slots=True)
class Reading:
    """The usage of one pod at a time. Only the total is known if ``by_container`` is empty."""

    at: datetime
    by_container: Mapping[str, ResourceList]
    total: ResourceList

    def cpu(self, containers: Sequence[ObservedContainer]) -> Mapping[str, float]:
        """Container -> cores; without containers whose usage is not known."""
        return self._usage(CPU, {each.name: each.cpu_request for each in containers})

    def memory(self, containers: Sequence[ObservedContainer]) -> Mapping[str, float]:
        """Container -> bytes; without containers whose usage is not known."""
        return self._usage(MEMORY, {each.name: each.memory_request for each in containers})

    def _usage(self, resource: str, requests: Mapping[str, float]) -> Mapping[str, float]:
        if self.by_container.keys() & requests.keys():
            known = {name: usage[resource] for name, usage in self.by_container.items() if resource in usage}
            return {name: quantity.nanos / _NANO for name, quantity in known.items() if name in requests}
        total = self.total.get(resource)
        if total is None or not requests:
            return {}
        # Of the containers of a pod whose total alone is known, each is assumed to use its share of the requests.
        requested = sum(requests.values())
        amount = total.nanos / _NANO
        return {
            name: amount * (request / requested if requested else 1 / len(requests))
            for name, request in requests.items()
        }


Readings = Mapping[tuple[str, str], Reading]
"""(namespace, name) of a pod -> its usage."""


class Source(Protocol):
    name: str

    async def read(self, namespaces: Iterable[str]) -> Readings:
        """The current usage of the pods of these namespaces, at least. Raises KubeError."""
        ...


class MetricsApi:
    """One request for each namespace."""

    name = METRICS_API

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, namespaces: Iterable[str]) -> Readings:
        found: dict[tuple[str, str], Reading] = {}
        for namespace in namespaces:
            page = await self._client.list(POD_METRICS, namespace)
            for each in page.malformed:
                logger.debug("PodMetrics %s/%s cannot be read: %s", each.namespace, each.name, each.error)
            for item in page.items:
                reading = _reading(item)
                if reading is not None:
                    found[item.metadata.namespace, item.metadata.name] = reading
        return found


def _reading(item: PodMetrics) -> Reading | None:
    if item.timestamp is None or not item.containers:
        return None
    by_container = {each.name: each.usage for each in item.containers}
    # A server that knows the usage of whole pods only reports it as that of one container, under a name of its own.
    total = item.containers[0].usage if len(item.containers) == 1 else {}
    return Reading(item.timestamp, by_container, total)


class NodeMetricReports:
    """The usage of pods in NodeMetrics: averages of some minutes, which hide short peaks of memory."""

    name = NODE_METRIC

    def __init__(self, informers: InformerSet, clock: Clock, yielding: CooperativeYielding) -> None:
        self._reports = trimmed_node_reports(informers)
        self._clock = clock
        self._yielding = yielding

    async def read(self, namespaces: Iterable[str]) -> Readings:
        wanted = frozenset(namespaces)
        oldest = self._clock.now() - _OLDEST_REPORT
        found: dict[tuple[str, str], Reading] = {}
        for report in self._reports.list():
            await self._yielding.checkpoint()
            facts = facts_of(report)
            if facts.update_time is None or facts.update_time < oldest:
                continue
            for key, usage in facts.pods.items():
                if key[0] in wanted and key not in facts.half_told:
                    total = {CPU: Quantity.from_milli(usage.cpu), MEMORY: Quantity.from_value(usage.memory)}
                    found[key] = Reading(facts.update_time, {}, total)
        return found


class Samples:
    """Reads the source that ``--recommender-source`` selects; for ``auto`` the first that has any readings."""

    def __init__(self, selected: str, sources: Sequence[Source]) -> None:
        self._sources = [each for each in sources if selected in (AUTO, each.name)]
        self._announced = ""

    async def read(self, namespaces: Sequence[str]) -> tuple[str, Readings]:
        """The name of the source and its readings; an empty name if no source has any."""
        problems = []
        for source in self._sources:
            try:
                readings = await source.read(namespaces)
            except KubeError as error:
                problems.append(f"{source.name}: {error}")
                continue
            if readings:
                self._announce(f"samples come from {source.name}", problems)
                return source.name, readings
            problems.append(f"{source.name} has no usage of the pods")
        self._announce("there are no samples", problems)
        return "", {}

    def _announce(self, text: str, problems: Sequence[str]) -> None:
        """Log which source is used when that changes."""
        text = f"recommender: {text}" + (f" ({'; '.join(problems)})" if problems else "")
        if text != self._announced:
            self._announced = text
            logger.info("%s", text)
