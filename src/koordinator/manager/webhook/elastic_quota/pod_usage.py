"""What a pod takes from its quota when it is admitted."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from koordinator.api.annotations import REPLACE_RESOURCES
from koordinator.api.pod import Container, Pod, ResourceList
from koordinator.api.quantity import Format, Quantity
from koordinator.api.resource_names import CPU
from koordinator.model.pod_requests import pod_requests

_ENDED: Final = ("Succeeded", "Failed")


def pod_usage(pod: Pod) -> ResourceList:
    """Its requests, in the units that its first container gives them in; nothing for a pod that has ended."""
    if pod.status.phase in _ENDED:
        return {}
    formats: dict[str, Format] = {}
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for name, amount in container.resources.requests.items():
            formats.setdefault(name, amount.format)
    requests = pod_requests(pod, resized=False)
    return {name: Quantity(nanos, formats.get(name, Format.DECIMAL_SI)) for name, nanos in requests.items() if nanos}


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
