"""The selector of the default constraints of a pod: that of its Services and its controller (upstream:
DefaultSelector)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from koordinator.api.kinds import REPLICA_SETS, REPLICATION_CONTROLLERS, SERVICES, STATEFUL_SETS, Kind
from koordinator.api.meta import Object, OwnerReference, controller_of
from koordinator.api.pod import Pod
from koordinator.api.workload import Service
from koordinator.model.label_selector import EVERYTHING, CompiledSelector, SelectorError, compile_selector
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView

READ: Final[tuple[Kind[Any], ...]] = (SERVICES, REPLICATION_CONTROLLERS, REPLICA_SETS, STATEFUL_SETS)
"""The kinds from which the selectors are derived."""
_VERSIONS: Final = itertools.count()
"""Of all instances: the memos of pods have those of a plugin before it was reset, too."""
_MEMO: Final = "PodTopologySpread/belongs"
_CONTROLLERS: Final[Mapping[tuple[str, str], Kind[Any]]] = {
    ("v1", "ReplicationController"): REPLICATION_CONTROLLERS,
    ("apps/v1", "ReplicaSet"): REPLICA_SETS,
    ("apps/v1", "StatefulSet"): STATEFUL_SETS,
}


class DefaultSelectors:
    """Computes and caches the default selectors of pods. It indexes Services by one of the labels that they select, so
    that few of them are compared with a pod."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self.changes = self._since = next(_VERSIONS)
        """Increases whenever any selector may have changed."""
        self._versions: dict[str, int] = {}
        self._services: dict[tuple[str, str, str], dict[str, Service]] = {}

    def on_object(self, kind: Kind[Any], key: str, old: Object | None, new: Object | None) -> None:
        """An object of any kind was added, updated or deleted."""
        if kind not in READ or _selector_of(old) == _selector_of(new):
            return
        known = new or old
        assert known is not None
        self._versions[known.metadata.namespace] = self.changes = next(_VERSIONS)
        self._view.concerns_version += 1
        if kind is SERVICES:
            for service, present in ((old, False), (new, True)):
                if isinstance(service, Service) and service.spec.selector:
                    self._index(key, service, present=present)

    def version(self, namespace: str) -> int:
        """Increases whenever selectors of pods in ``namespace`` may have changed."""
        return self._versions.get(namespace, self._since)

    def selector(self, pod: PodInfo) -> CompiledSelector:
        """The default selector of the pod; empty if it has no Service and no controller."""
        owner = controller_of(pod.pod.metadata)
        valid = self.version(pod.pod.metadata.namespace), owner
        known = pod.memo.get(_MEMO)
        if known is not None and known[0] == valid:
            selector: CompiledSelector = known[1]
            return selector
        selector = self._of_services(pod.pod)
        if owner is not None:
            selector = self._of_controller(pod.pod.metadata.namespace, owner, selector)
        pod.memo[_MEMO] = valid, selector
        return selector

    def _of_services(self, pod: Pod) -> CompiledSelector:
        labels: dict[str, str] = {}
        for service in self._candidates(pod):
            wanted = service.spec.selector
            if wanted.items() <= pod.metadata.labels.items():
                labels.update(wanted)
        return EVERYTHING.with_labels(labels)

    def _candidates(self, pod: Pod) -> Iterator[Service]:
        namespace = pod.metadata.namespace
        for key, value in pod.metadata.labels.items():
            yield from self._services.get((namespace, key, value), {}).values()

    def _of_controller(self, namespace: str, owner: OwnerReference, services: CompiledSelector) -> CompiledSelector:
        """``services`` joined with the controller's selector; unchanged if the controller is unknown or its selector
        invalid."""
        kind = _CONTROLLERS.get((owner.api_version, owner.kind))
        controller = self._view.objects_of(kind).get(f"{namespace}/{owner.name}") if kind is not None else None
        if controller is None or controller.spec.selector is None:
            return services
        if kind is REPLICATION_CONTROLLERS:
            return EVERYTHING.with_labels({**services.required, **controller.spec.selector})
        try:
            return services.also(compile_selector(controller.spec.selector))
        except SelectorError:
            return services

    def _index(self, key: str, service: Service, *, present: bool) -> None:
        # Any label of the selector will do, since every pod that the service selects has all of them.
        place = service.metadata.namespace, *min(service.spec.selector.items())
        if present:
            self._services.setdefault(place, {})[key] = service
            return
        services = self._services[place]
        del services[key]
        if not services:
            del self._services[place]


def _selector_of(obj: Any) -> object:
    return obj.spec.selector if obj is not None else None
