"""Stand-ins for plugins that are not built yet: a pod that needs one waits and says so.

Placing such a pod as if it needed nothing would break a promise that its author relies on: replicas side by side that
must be apart, a volume in another zone, half of a gang. Pods that do not need the plugin never notice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api import resource_names
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.framework import PreFilterPlugin, PreFilterResult, Reason
from koordinator.scheduler.engine.pod_info import PodInfo

_DEVICES: Final = frozenset(
    {
        resource_names.GPU,
        resource_names.GPU_CORE,
        resource_names.GPU_MEMORY,
        resource_names.GPU_MEMORY_RATIO,
        resource_names.GPU_SHARED,
        resource_names.RDMA,
        resource_names.FPGA,
    }
)


def _asks_for_shared_devices(pod: Pod) -> bool:
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return any(not _DEVICES.isdisjoint(container.resources.requests) for container in containers)


def _is_in_a_gang(pod: Pod) -> bool:
    labels = pod.metadata.labels
    in_group = labels.get(label_keys.POD_GROUP) or labels.get(label_keys.DEPRECATED_POD_GROUP_NAME)
    return bool(in_group or pod.metadata.annotations.get(annotation_keys.GANG_NAME))


def _requires_a_reservation(pod: Pod) -> bool:
    return annotation_keys.RESERVATION_AFFINITY in pod.metadata.annotations


_NEEDS: Final[Mapping[str, tuple[str, Callable[[Pod], bool]]]] = MappingProxyType(
    {
        "DeviceShare": ("shared devices", _asks_for_shared_devices),
        "Coscheduling": ("gangs", _is_in_a_gang),
        "Reservation": ("reservation affinity", _requires_a_reservation),
    }
)


def _stand_in(plugin: str, what: str, needs: Callable[[Pod], bool]) -> type[PreFilterPlugin]:
    reason = Reason(
        f"the pod needs plugin {plugin} ({what}), which this scheduler does not have yet", unresolvable=True
    )

    class NotBuilt(PreFilterPlugin):
        name = plugin

        def class_key(self, pod: PodInfo) -> Hashable:
            return needs(pod.pod)

        def pre_filter(self, pod: PodInfo) -> PreFilterResult:
            return PreFilterResult(skip=True, rejection=reason if needs(pod.pod) else None)

        def events_to_register(self) -> frozenset[str]:
            return frozenset({EventKind.POD_UPDATE})

    return NotBuilt


STAND_INS: Final[Mapping[str, type[PreFilterPlugin]]] = MappingProxyType(
    {plugin: _stand_in(plugin, what, needs) for plugin, (what, needs) in _NEEDS.items()}
)
