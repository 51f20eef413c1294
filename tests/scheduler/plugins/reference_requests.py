"""What pods request and nodes have, plainly: container by container, resource by resource."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from koordinator.api.node import Node
from koordinator.api.pod import Container, Pod


def requests_of(pod: Pod) -> dict[str, int]:
    """What the whole pod requests, in the unit of the scheduler."""
    return {name: request_of(pod, name) for name in _names(pod, "requests")}


def request_of(pod: Pod, name: str, default: int = 0) -> int:
    """``default`` counts for each container that does not name the resource."""
    whole = pod.spec.resources.requests if pod.spec.resources else {}
    overhead = amount_of(pod.spec.overhead, name)
    if name in whole and _may_be_of_whole_pod(name):
        return amount_of(whole, name) + overhead
    return most_at_once(
        pod, lambda container, resizable: container_request(pod, container, name, default, resizable)
    ) + (overhead)


def most_at_once(pod: Pod, of: Callable[[Container, bool], int]) -> int:
    """While an init container runs there are it and the sidecars before it; then the containers and all sidecars."""
    sidecars, most = 0, 0
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            sidecars += of(container, True)
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + of(container, False))
    return max(most, sidecars + sum(of(container, True) for container in pod.spec.containers))


def container_request(pod: Pod, container: Container, name: str, default: int, resizable: bool) -> int:
    """Of a container that is being resized: the most of what is requested, granted and in force."""
    spec = container.resources.requests
    found = [spec] if name in spec else []
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        if resizable and status.name == container.name and status.resources is not None:
            granted = [status.resources.requests, status.allocated_resources]
            waits = [each.reason for each in pod.status.conditions if each.type == "PodResizePending"]
            found = [
                amounts for amounts in ([] if waits[:1] == ["Infeasible"] else [spec]) + granted if name in amounts
            ]
    return max((amount_of(amounts, name) for amounts in found), default=default)


def limits_of(pod: Pod) -> dict[str, int]:
    limits = {}
    for name in _names(pod, "limits"):
        limit = most_at_once(pod, lambda container, _, name=name: amount_of(container.resources.limits, name))  # type: ignore[misc]
        whole = pod.spec.resources.limits if pod.spec.resources else {}
        if name in whole and _may_be_of_whole_pod(name):
            limit = amount_of(whole, name)
        limits[name] = limit + amount_of(pod.spec.overhead, name) if limit else 0
    return limits


def non_zero_of(pod: Pod) -> dict[str, int]:
    """With what is counted for containers that leave CPU or memory out, unless the pod as a whole requests anything:
    then only for what nobody names."""
    whole = pod.spec.resources.requests if pod.spec.resources else {}
    counted = {}
    for name, default in {"cpu": 100, "memory": 200 * 1024 * 1024}.items():
        named = any(_may_be_of_whole_pod(each) for each in whole) and name in requests_of(pod)
        counted[name] = request_of(pod, name, 0 if named else default)
    return counted


def _names(pod: Pod, kind: str) -> list[str]:
    """The resources that somebody names, each once, in the order of the document."""
    lists = [getattr(container.resources, kind) for container in (*pod.spec.containers, *pod.spec.init_containers)]
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    if kind == "requests":
        lists += [status.resources.requests for status in statuses if status.resources is not None]
        lists += [status.allocated_resources for status in statuses if status.resources is not None]
        lists.append(pod.spec.overhead)
    if pod.spec.resources:
        lists.append({n: q for n, q in getattr(pod.spec.resources, kind).items() if _may_be_of_whole_pod(n)})
    return list(dict.fromkeys(name for each in lists for name in each))


def _may_be_of_whole_pod(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def allocatable_of(node: Node) -> dict[str, int]:
    return {name: amount.milli if name == "cpu" else amount.value for name, amount in node.status.allocatable.items()}


def total(amounts: Sequence[dict[str, int]], name: str) -> int:
    return sum(each.get(name, 0) for each in amounts)


def amount_of(resources: Any, name: str) -> int:
    amount = resources.get(name)
    if amount is None:
        return 0
    return int(amount.milli if name == "cpu" else amount.value)
