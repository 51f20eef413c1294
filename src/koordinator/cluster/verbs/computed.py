"""GET and list of kinds that are computed for each request: the usage of nodes and pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError, method_not_allowed, not_found
from koordinator.cluster.metrics_api import GROUP, Report, node_usage, pod_usage, read_report
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import ListOptions
from koordinator.cluster.verbs.read import ObjectList
from koordinator.cluster.verbs.selection import field_label_not_supported, parse_field_selector, parse_label_selector
from koordinator.cluster.verbs.target import Target, encode

_NODE_METRICS: Final = ("slo.koordinator.sh", "nodemetrics")


class _Container(msgspec.Struct):
    name: str = ""


class _Spec(msgspec.Struct):
    containers: list[_Container] = []


class _Head(msgspec.Struct):
    """As much of a node or pod as its metrics repeat: decoded for each of them, so no more than that."""

    metadata: Document
    spec: _Spec


_head = msgspec.json.Decoder(_Head).decode


def get_computed(environment: Environment, target: Target) -> Stored:
    """Raises ApiError: 404 for what is absent or has reported nothing, 405 for a subresource."""
    if target.subresource:
        raise method_not_allowed()
    for obj in _objects(environment, target):
        return _stored(target.resource, obj)
    raise _no_metrics(target)


def list_computed(environment: Environment, target: Target, options: ListOptions) -> ObjectList:
    """Always whole. Raises ApiError 400 for a selector that does not parse, or of another field than the name."""
    options.check_list()
    matches = parse_label_selector(options.label_selector)
    fields = parse_field_selector(options.field_selector)
    for field, _, _ in fields:
        if field not in ("metadata.name", "metadata.namespace"):
            raise field_label_not_supported(field, only_metadata=True)
    selected = [
        _stored(target.resource, obj)
        for obj in _objects(environment, target)
        if matches(obj["metadata"].get("labels") or {})
        and all(
            (obj["metadata"].get(field.removeprefix("metadata."), "") == value) == (operator == "=")
            for field, operator, value in fields
        )
    ]
    return ObjectList(selected, environment.storage.revision())


def _objects(environment: Environment, target: Target) -> Iterator[Document]:
    return _COMPUTED[target.resource.group, target.resource.plural](environment, target)


def _nodes(environment: Environment, target: Target) -> Iterator[Document]:
    reports = _reports(environment)
    for stored in _originals(environment, target):
        metadata = _head(stored.value).metadata
        report = reports.get(metadata["name"])
        if report is not None and report.node:
            yield node_usage(report, metadata)


def _pods(environment: Environment, target: Target) -> Iterator[Document]:
    reports = _reports(environment)
    usages = {key: (report, usage) for report in reports.values() for key, usage in report.pods.items() if usage}
    for stored in _originals(environment, target):
        namespace, name = stored.key.split("/")[-2:]
        if (namespace, name) in usages:
            pod, (report, usage) = _head(stored.value), usages[namespace, name]
            yield pod_usage(report, pod.metadata, usage, (container.name for container in pod.spec.containers))


def _originals(environment: Environment, target: Target) -> Iterable[Stored]:
    """The nodes or pods themselves: the metrics of one that is gone are not served."""
    resource = environment.registry.stored["", target.resource.plural]
    assert resource is not None
    if target.name:
        found = environment.storage.get(Target(resource, target.namespace, target.name).key)
        return [] if found is None else [found]
    return environment.storage.list(Target(resource, target.namespace).prefix).items


def _reports(environment: Environment) -> dict[str, Report]:
    """Node -> its last report; empty where NodeMetrics are not defined."""
    now = environment.clock.now()
    found = ((o["metadata"]["name"], read_report(o, now)) for o in environment.list_objects(*_NODE_METRICS))
    return {name: report for name, report in found if report is not None}


def _stored(resource: Resource, obj: Document) -> Stored:
    """As if it had been read from the store, so that it is rendered like everything else; without a revision."""
    return Stored(f"/{obj['metadata']['name']}", encode(resource, obj), 0)


def _no_metrics(target: Target) -> ApiError:
    """In the words of metrics-server, which names the kind and the namespace."""
    error = not_found(target.resource, target.name)
    name = f"{target.namespace}/{target.name}" if target.namespace else target.name
    error.message = f'{target.resource.kind.lower()}.{GROUP} "{name}" not found'
    return error


_COMPUTED: Final[Mapping[tuple[str, str], Callable[[Environment, Target], Iterator[Document]]]] = {
    (GROUP, "nodes"): _nodes,
    (GROUP, "pods"): _pods,
}
