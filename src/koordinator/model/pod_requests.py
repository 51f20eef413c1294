"""The requests and limits of a pod: the sums over its containers that are counted on nodes.

The rules are those of k8s.io/component-helpers/resource (PodRequests, PodLimits): containers add up; init containers
run one after the other, beside the sidecars started before them, so the pod needs the larger of the two phases; amounts
for the whole pod replace those of its containers; overhead is added. A container that is being resized counts with the
largest of its request, what the node has allocated and what it runs with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from koordinator.api.pod import Container, ContainerStatus, Pod, ResourceList
from koordinator.api.quantity import Quantity
from koordinator.api.usable_amounts import bounded

Amounts = dict[str, int]
"""Resource name -> exact amount in units of 10**-9."""

_AmountsOf = Callable[[Container, bool], Amounts]
"""(container, whether its status counts) -> amounts of its own that the caller may change."""

_NANO: Final = 10**9
NON_ZERO_DEFAULTS: Final[Mapping[str, int]] = {"cpu": 100 * 10**6, "memory": 200 * 2**20 * _NANO}
"""The scored requests of a container that requests no CPU or memory: 100 milli-CPU, 200 MiB."""


def pod_requests(pod: Pod, missing: Mapping[str, int] | None = None, *, resized: bool = True) -> Amounts:
    """Requests of the whole pod. ``missing``: amounts for containers that do not request the resource at all.
    ``resized``: count what containers have been allocated or run with, not only what the spec requests."""
    if not missing and _is_plain(pod) and not (resized and _is_resized(pod)):
        return _sums([container.resources.requests for container in pod.spec.containers])
    statuses = _statuses(pod) if resized else {}
    infeasible = is_resize_infeasible(pod)

    def requests(container: Container, resizable: bool) -> Amounts:
        amounts = _nanos(container.resources.requests)
        status = statuses.get(container.name) if resizable else None
        if status is not None and status.resources is not None:
            granted = _larger(_nanos(status.resources.requests), _nanos(status.allocated_resources))
            amounts = granted if infeasible else _larger(amounts, granted)
        if missing:
            amounts = {**missing, **amounts}
        return amounts

    total = _aggregate(pod, requests)
    whole = pod.spec.resources.requests if pod.spec.resources is not None else {}
    total.update(_pod_level(whole))
    _add(total, _nanos(pod.spec.overhead))
    return total


def pod_limits(pod: Pod) -> Amounts:
    """Limits of the whole pod; overhead counts only for resources with a limit."""
    if _is_plain(pod):
        return _sums([container.resources.limits for container in pod.spec.containers])
    total = _aggregate(pod, lambda container, _: _nanos(container.resources.limits))
    whole = pod.spec.resources.limits if pod.spec.resources is not None else {}
    total.update(_pod_level(whole))
    for name, amount in _nanos(pod.spec.overhead).items():
        if total.get(name):
            total[name] += amount
    return total


def non_zero_requests(pod: Pod) -> Amounts:
    """Requests with ``NON_ZERO_DEFAULTS`` for resources that containers do not request. Where amounts are given for the
    whole pod, only for resources that neither requests."""
    whole = pod.spec.resources.requests if pod.spec.resources is not None else {}
    if not _pod_level(whole):
        return pod_requests(pod, NON_ZERO_DEFAULTS)
    exact = pod_requests(pod)
    return pod_requests(pod, {name: amount for name, amount in NON_ZERO_DEFAULTS.items() if name not in exact})


def canonical(name: str, nanos: int) -> int:
    """An exact amount in the unit of its column (milli-CPU, else whole units), rounded up, within the bounds of what
    can be meant."""
    return bounded(-(-nanos // (10**6 if name == "cpu" else _NANO)))


def _is_plain(pod: Pod) -> bool:
    """Whether only containers count, so that they can simply be summed up: true for most pods, of which there are
    many."""
    spec = pod.spec
    return not spec.init_containers and spec.resources is None and not spec.overhead


def _is_resized(pod: Pod) -> bool:
    """Whether some container may count with other amounts than its spec's."""
    status = pod.status
    if not status.container_statuses:
        return bool(status.init_container_statuses)
    requested = {container.name: container.resources.requests for container in pod.spec.containers}
    for each in status.container_statuses:
        if each.resources is None or each.name not in requested:
            continue
        amounts = requested[each.name]
        if each.resources.requests != amounts or (each.allocated_resources and each.allocated_resources != amounts):
            return True
    return bool(status.init_container_statuses)


def _sums(parts: Sequence[ResourceList]) -> Amounts:
    if len(parts) == 1:
        return _nanos(parts[0])
    total: Amounts = {}
    for part in parts:
        for name, quantity in part.items():
            total[name] = total.get(name, 0) + quantity.nanos
    return total


def _aggregate(pod: Pod, amounts_of: _AmountsOf) -> Amounts:
    total: Amounts = {}
    for container in pod.spec.containers:
        _add(total, amounts_of(container, True))
    sidecars: Amounts = {}
    initial: Amounts = {}
    for container in pod.spec.init_containers:
        is_sidecar = container.restart_policy == "Always"
        amounts = amounts_of(container, is_sidecar)
        if is_sidecar:
            _add(total, amounts)
            _add(sidecars, amounts)
            phase = sidecars
        else:
            _add(amounts, sidecars)
            phase = amounts
        initial = _larger(initial, phase)
    return _larger(total, initial)


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    status = pod.status
    if not status.container_statuses and not status.init_container_statuses:
        return {}
    return {each.name: each for each in (*status.container_statuses, *status.init_container_statuses)}


def is_resize_infeasible(pod: Pod) -> bool:
    """As upstream decides it: by the reason of the condition alone, whatever its status is."""
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _pod_level(amounts: ResourceList) -> Amounts:
    supported = ((n, q) for n, q in amounts.items() if n in ("cpu", "memory") or n.startswith("hugepages-"))
    return {name: quantity.nanos for name, quantity in supported}


def _nanos(amounts: Mapping[str, Quantity]) -> Amounts:
    return {name: quantity.nanos for name, quantity in amounts.items()}


def _add(total: Amounts, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _larger(first: Mapping[str, int], second: Mapping[str, int]) -> Amounts:
    names: Iterable[str] = (*first, *(name for name in second if name not in first))
    return {
        name: first[name]
        if name not in second
        else second[name]
        if name not in first
        else max(first[name], second[name])
        for name in names
    }
