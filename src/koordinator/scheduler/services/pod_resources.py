"""``/metrics/resources``: what each pod requests and is limited to, as kube-scheduler serves it.

There may be tens of thousands of pods, so the response is written piece by piece, with decisions made in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.api.pod import Pod
from koordinator.kube.pages import Request, Response
from koordinator.kube.serving import HealthServer
from koordinator.model.pod_requests import pod_limits, pod_requests

_PODS_AT_ONCE: Final = 200
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_UNITS: Final[Mapping[str, str]] = {
    "cpu": "cores",
    "memory": "bytes",
    "storage": "bytes",
    "ephemeral-storage": "bytes",
}
_NANO: Final = 10**9


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    what: str
    """The first words of the metric's help text."""
    amounts: Callable[[Pod], Mapping[str, int]]
    """Amounts in billionths, by resource."""


_FAMILIES: Final = (
    _Family("kube_pod_resource_limit", "Resources limit for", pod_limits),
    _Family("kube_pod_resource_request", "Resources requested by", lambda pod: pod_requests(pod, resized=False)),
)


def add_pod_resources(server: HealthServer, pods: Callable[[], Iterable[Pod]], is_leading: Callable[[], bool]) -> None:
    """Serve the path; an instance that does not lead returns no samples."""

    async def handle(request: Request) -> Response:
        return Response(parts=_parts(list(pods()) if is_leading() else None), content_type=_CONTENT_TYPE)

    server.add_route("/metrics/resources", handle)


async def _parts(pods: Sequence[Pod] | None) -> AsyncGenerator[bytes, None]:
    for family in () if pods is None else _FAMILIES:
        for text in _written(family, pods or ()):
            yield text.encode()
            await asyncio.sleep(0)


def _written(family: _Family, pods: Sequence[Pod]) -> Iterator[str]:
    yield (
        f"# HELP {family.name} [STABLE] {family.what} workloads on the cluster, broken down by pod. This shows "
        "the resource usage the scheduler and kubelet expect per pod for resources along with the unit for the "
        f"resource if any.\n# TYPE {family.name} gauge\n"
    )
    for start in range(0, len(pods), _PODS_AT_ONCE):
        yield "".join(_samples(family, pod) for pod in pods[start : start + _PODS_AT_ONCE])


def _samples(family: _Family, pod: Pod) -> str:
    metadata, spec = pod.metadata, pod.spec
    priority = "" if spec.priority is None else spec.priority
    labels = (
        f'{family.name}{{namespace="{metadata.namespace}",node="{spec.node_name}",pod="{metadata.name}",'
        f'priority="{priority}"'
    )
    scheduler = f'scheduler="{spec.scheduler_name}"'
    return "".join(
        f'{labels},resource="{name}",{scheduler},unit="{_unit(name)}"}} {amount / _NANO}\n'
        for name, amount in family.amounts(pod).items()
        if amount
    )


def _unit(resource: str) -> str:
    if resource.startswith("hugepages-"):
        return "bytes"
    return "integer" if resource.startswith("attachable-volumes-") else _UNITS.get(resource, "")
