"""What a pod is expected to use by its Recommendation: what the containers of its workload have used until now, near
their peak. The estimator of koord-scheduler and LowNodeLoad of koord-descheduler read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.api.pod import Container, Pod
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.resource_names import CPU, MEMORY, extended_name
from koordinator.api.usable_amounts import MOST
from koordinator.model.pod_requests import canonical
from koordinator.model.recommendations import Amounts, Recommended

RESOURCES: Final = (CPU, MEMORY)
"""Those of which something is recommended."""


def expected_usage(pod: Pod, found: Recommended) -> Mapping[str, Amounts]:
    """Resource -> container -> what it is expected to use, in milli-CPU and bytes whatever the class of the pod: of the
    containers and sidecars that something is recommended for. No container uses more than its limit, which the pods of
    mid, batch and free have under the names of their class."""
    priority = priority_class_with_default(pod)
    expected: dict[str, dict[str, int]] = {}
    for container in lasting_containers(pod):
        for resource, amount in found.containers.get(container.name, _NOTHING).items():
            expected.setdefault(resource, {})[container.name] = min(amount, _limit(container, resource, priority))
    return expected


def lasting_containers(pod: Pod) -> list[Container]:
    """The containers that run as long as the pod does: all but the init containers that end before the others start."""
    return [*pod.spec.containers, *[each for each in pod.spec.init_containers if each.restart_policy == "Always"]]


_NOTHING: Final[Amounts] = {}


def _limit(container: Container, resource: str, priority: PriorityClass) -> int:
    name = extended_name(resource, priority)
    limit = container.resources.limits.get(name) if name else None
    amount = canonical(name, limit.nanos) if limit is not None else 0
    return amount if amount > 0 else MOST
