"""What a pod takes from its quota when it is admitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from koordinator.api.annotations import REPLACE_RESOURCES
from koordinator.api.pod import Container, Pod, ResourceList
from koordinator.api.quantity import Format, Quantity
from koordinator.api.resource_names import CPU
from koordinator.model.pod_requests import pod_requests

_ENDED: Final = ("Succeeded", "Failed")


def pod_usage(pod: Pod) -> ResourceList:
    """Its requests; nothing for a pod that has ended."""
    if pod.status.phase in _ENDED:
        return {}
    asked = _asked(pod)
    requests = pod_requests(pod, resized=False)
    return {name: _written(nanos, asked.get(name, ())) for name, nanos in requests.items() if nanos}


def _asked(pod: Pod) -> dict[str, list[Quantity]]:
    """All that the pod says of each resource."""
    spec = pod.spec
    parts = [each.resources.requests for each in (*spec.containers, *spec.init_containers)]
    if spec.resources is not None:
        parts.insert(0, spec.resources.requests)
    asked: dict[str, list[Quantity]] = {}
    for part in (*parts, spec.overhead):
        for name, amount in part.items():
            asked.setdefault(name, []).append(amount)
    return asked


def _written(nanos: int, asked: Sequence[Quantity]) -> Quantity:
    """As the pod writes it; a sum in the units of the first that asks for any."""
    if len(asked) == 1 and asked[0].nanos == nanos:
        return asked[0]
    return Quantity(nanos, next((amount.format for amount in asked if amount), Format.DECIMAL_SI))


def with_replaced_resources(pod: Pod) -> Pod:
    """The pod as its annotation ``a:b,c:`` asks: a counted as b unless it has b already, c not at all."""
    erased, renamed = _wishes(pod.metadata.annotations.get(REPLACE_RESOURCES, ""))
    if not erased and not renamed:
        return pod

    def replaced(resources: ResourceList) -> ResourceList:
        return _replaced(resources, erased, renamed)

    def container(each: Container) -> Container:
        return replace(each, resources=replace(each.resources, requests=replaced(each.resources.requests)))

    spec = replace(
        pod.spec,
        containers=[container(each) for each in pod.spec.containers],
        init_containers=[container(each) for each in pod.spec.init_containers],
        overhead=replaced(pod.spec.overhead),
    )
    return replace(pod, spec=spec)


def _wishes(text: str) -> tuple[set[str], dict[str, str]]:
    erased, renamed = set[str](), dict[str, str]()
    for wish in text.split(","):
        parts = [part.strip() for part in wish.split(":")]
        if len(parts) != 2:
            continue
        if parts[1]:
            renamed[parts[0]] = parts[1]
        else:
            erased.add(parts[0])
    return erased, renamed


def _replaced(resources: ResourceList, erased: set[str], renamed: dict[str, str]) -> ResourceList:
    left = {name: amount for name, amount in resources.items() if name not in erased}
    for old, new in renamed.items():
        if old in left and new not in left:
            amount = left.pop(old)
            left[new] = Quantity.from_value(amount.milli) if old == CPU else amount
    return left
