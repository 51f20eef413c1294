"""What the containers of a pod request together, and the resources of the pod as a whole, which default to that."""

from __future__ import annotations

from typing import Final, Literal

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.pod import Pod
from koordinator.api.quantity import Format, Quantity
from koordinator.cluster.strategy.resource_names import HUGE_PAGES
from koordinator.model.pod_requests import pod_limits, pod_requests

Group = Literal["requests", "limits"]
_GROUPS: Final = ("containers", "initContainers")
_COUNTED: Final = ("name", "resources", "restartPolicy")


def is_of_pods(name: str) -> bool:
    """Whether a pod may have an amount of the resource as a whole."""
    return name in ("cpu", "memory") or name.startswith(HUGE_PAGES)


def parsed(holder: Document | None, group: str) -> dict[str, Quantity]:
    """Amounts in the order of their names, as the real server's messages have them at best."""
    amounts = (holder or {}).get(group) or {}
    return {name: Quantity.parse(text) for name, text in sorted(amounts.items())}


def of_containers(spec: Document, group: Group) -> dict[str, Quantity]:
    """The sum over the containers, without the overhead and the amounts of the pod. Prints as its first part does."""
    holders = [container for group_of in _GROUPS for container in spec.get(group_of) or ()]
    typed = convert({"metadata": {}, "spec": {name: _counted(spec, name) for name in _GROUPS}}, Pod)
    sums = pod_requests(typed, resized=False) if group == "requests" else pod_limits(typed)
    formats: dict[str, Format] = {}
    for holder in holders:
        for name, amount in parsed(holder.get("resources"), group).items():
            if amount:
                formats.setdefault(name, amount.format)
    return {name: Quantity(sums[name], formats.get(name, Format.DECIMAL_SI)) for name in sorted(sums)}


def _counted(spec: Document, group: str) -> list[Document]:
    """No more of the containers than counts, of which the rest need not be valid."""
    return [
        {"name": "", **{name: each[name] for name in _COUNTED if each.get(name) is not None}}
        for each in spec.get(group) or ()
    ]


def set_defaults(spec: Document) -> None:
    """Fill in the amounts of the pod, if it has some: limits of huge pages and requests from its containers, and
    requests from its limits."""
    resources = spec.get("resources")
    if not resources or not (resources.get("limits") or resources.get("requests")):
        return
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, amount in of_containers(spec, "limits").items():
        if name.startswith(HUGE_PAGES) and name not in requests:
            limits.setdefault(name, str(amount))
    if limits:
        for name, amount in of_containers(spec, "requests").items():
            if name in ("cpu", "memory"):
                requests.setdefault(name, str(amount))
        requests |= {name: limits[name] for name in limits if is_of_pods(name) and name not in requests}
    for group, amounts in (("requests", requests), ("limits", limits)):
        if amounts:
            resources[group] = amounts
