"""What pods use of a resource, beside what they request of it; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from koordinator.api.pod import Container, Pod
from koordinator.api.quantity import Format
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.controllers.autoscaler.types import PodMetrics

_GO_DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")


class MetricError(KoordinatorError):
    """A metric from which no number of replicas follows."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The usage of one pod, in thousandths of the resource's unit."""

    milli: int
    taken: datetime | None
    window: timedelta
    form: Format
    """In which the node reports it: the status shows averages in the same one."""


def samples_of(metrics: Iterable[PodMetrics], resource: str, container: str = "") -> dict[str, Sample]:
    """By the names of the pods; those that do not report all their containers are missing. Raises MetricError."""
    found = list(metrics)
    if not found:
        raise MetricError(
            f"unable to get metrics for resource {resource}: no metrics returned from resource metrics API"
        )
    samples: dict[str, Sample] = {}
    for each in found:
        amounts = [one.usage.get(resource) for one in each.containers if container in ("", one.name)]
        if container and not amounts:
            where = f"{each.metadata.namespace}/{each.metadata.name}"
            raise MetricError(
                f"unable to get metrics for resource {resource}: failed to get container metrics: "
                f"container {container} not present in metrics for pod {where}"
            )
        known = [amount for amount in amounts if amount is not None]
        if known and len(known) == len(amounts):
            samples[each.metadata.name] = Sample(
                sum(amount.milli for amount in known), each.timestamp, _duration(each.window), known[0].format
            )
    return samples


def _duration(text: str) -> timedelta:
    """What cannot be read is none: the sample then counts as one of a moment."""
    found = _GO_DURATION.fullmatch(text)
    hours, minutes, seconds = found.groups() if found is not None else (None, None, None)
    return timedelta(hours=int(hours or 0), minutes=int(minutes or 0), seconds=float(seconds or 0))


def requests_of(pods: Sequence[Pod], resource: str, container: str = "") -> dict[str, int]:
    """In thousandths, by the names of the pods. Raises MetricError for one that does not request the resource."""
    return {pod.metadata.name: _request(pod, resource, container) for pod in pods}


def _request(pod: Pod, resource: str, container: str) -> int:
    of_pod = pod.spec.resources.requests.get(resource) if pod.spec.resources is not None else None
    if of_pod is not None and not container:
        return of_pod.milli
    sidecars = [each for each in pod.spec.init_containers if each.restart_policy == "Always"]
    counted = [each for each in (*pod.spec.containers, *sidecars) if container in ("", each.name)]
    return sum(_container_request(each, pod, resource) for each in counted)


def _container_request(container: Container, pod: Pod, resource: str) -> int:
    amount = container.resources.requests.get(resource)
    if amount is None:
        raise MetricError(f"missing request for {resource} in container {container.name} of Pod {pod.metadata.name}")
    return amount.milli
