"""What ``/metrics`` shows of the server, under the names that it has on kube-apiserver: requests, watches, objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koordinator.base.metrics import Metrics
from koordinator.cluster.http.request import ResourcePath
from koordinator.cluster.resource import Resource
from koordinator.cluster.verbs.environment import Environment

_NO_PATH: Final = ResourcePath("", "", "", None, "", "")
_ON_COLLECTION: Final = {"GET": "LIST", "DELETE": "DELETECOLLECTION"}
_METHODS: Final = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE"))


class RequestMetrics:
    """Counts requests as they end. Names that only a client made up do not become series."""

    def __init__(self, metrics: Metrics, environment: Environment) -> None:
        self._environment = environment
        self._total = metrics.counter(
            "apiserver_request_total",
            "Counter of apiserver requests broken out for each verb, group, version, resource, scope and HTTP response "
            "code.",
            ("verb", "group", "version", "resource", "subresource", "scope", "code"),
            stability="STABLE",
        )
        metrics.register(_ObjectCounts(environment))

    def count(self, method: str, path: ResourcePath | None, code: int, *, is_watch: bool) -> None:
        """A request that has ended with ``code``."""
        path = path or _NO_PATH
        resource = self._environment.registry.find(path.group, path.version, path.plural)
        if resource is None:
            verb = method if method in _METHODS else "other"
            self._total.labels(verb, "", "", "", "", "", str(code)).inc()
            return
        verb = "WATCH" if is_watch else method if path.name else _ON_COLLECTION.get(method, method)
        subresource = path.subresource if path.subresource in resource.subresources else ""
        scope = "resource" if path.name else "namespace" if path.namespace else "cluster"
        self._total.labels(
            verb if method in _METHODS else "other",
            path.group, path.version, path.plural, subresource, scope, str(code),
        ).inc()  # fmt: skip


class OpenRequests(Collector):
    """How many requests and watches there are at this moment."""

    def __init__(self, requests: Callable[[], int], watches: Callable[[], int]) -> None:
        self._requests = requests
        self._watches = watches

    def collect(self) -> Iterable[Metric]:
        requests = GaugeMetricFamily(
            "apiserver_current_inflight_requests", "[STABLE] Requests that are worked on, without watches."
        )
        requests.add_metric((), self._requests())
        watches = GaugeMetricFamily(
            "apiserver_longrunning_requests", "[STABLE] Requests that last: watches.", labels=("verb",)
        )
        watches.add_metric(("WATCH",), self._watches())
        return (requests, watches)


class _ObjectCounts(Collector):
    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "apiserver_resource_objects", "[ALPHA] Number of stored objects by kind.", labels=("group", "resource")
        )
        for resource in self._environment.registry:
            if _is_stored(resource):
                page = self._environment.storage.list(resource.storage_prefix(), limit=1)
                family.add_metric((resource.group, resource.plural), len(page.items) + page.remaining)
        return (family,)


def _is_stored(resource: Resource) -> bool:
    return resource.storage_version and "watch" in resource.verbs
