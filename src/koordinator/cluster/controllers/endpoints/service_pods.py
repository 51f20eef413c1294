"""What both controllers of endpoints watch: Services and the pods that they select."""

from __future__ import annotations

from collections.abc import Callable

from koordinator.api.kinds import PODS
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.endpoints.pod_endpoints import PodEndpoint, pod_endpoints
from koordinator.cluster.controllers.endpoints.types import SERVICES, Service
from koordinator.cluster.controllers.selector_index import SelectorIndex
from koordinator.model.label_selector import NOTHING, CompiledSelector

_PLACES: str = "namespace or label"


class ServicePods:
    """The pods of each Service."""

    def __init__(self, context: ControllerContext, name: str) -> None:
        """``name`` is that of the controller."""
        self._name = name
        self.services = context.informers.informer(SERVICES)
        self._pods = context.informers.informer(PODS, indexes={_PLACES: _places})
        self._selecting = SelectorIndex(f"pods of {name}", self.services, _selector)

    def follow(self, add: Callable[[str], None], gone: Callable[[Service], None]) -> None:
        """``add`` is called with the key of each Service whose list of pods may have changed."""
        self.services.add_handlers(
            name=self._name,
            on_add=lambda service, _: add(service.metadata.key),
            on_update=lambda _, service: add(service.metadata.key),
            on_delete=gone,
        )

        def changed(*metadata: ObjectMeta) -> None:
            for key in {each.metadata.key for one in metadata for each in self._selecting.selecting(one)}:
                add(key)

        self._pods.add_handlers(
            name=self._name,
            on_add=lambda pod, _: changed(pod.metadata),
            on_update=lambda old, new: changed(old.metadata, new.metadata),
            on_delete=lambda pod: changed(pod.metadata),
        )

    def endpoints(self, service: Service) -> list[PodEndpoint]:
        """Of a Service with a selector."""
        labels = min(service.spec.selector.items())
        pods = self._pods.by_index(_PLACES, _place(service.metadata.namespace, *labels))
        selector = _selector(service)
        return pod_endpoints(service, (pod for pod in pods if selector.matches(pod.metadata.labels)))


def _selector(service: Service) -> CompiledSelector:
    return CompiledSelector(frozenset(service.spec.selector.items())) if service.lists_pods else NOTHING


def _places(pod: Pod) -> tuple[str, ...]:
    metadata = pod.metadata
    return tuple(_place(metadata.namespace, *label) for label in metadata.labels.items())


def _place(namespace: str, key: str, value: str) -> str:
    """Names, keys and values have no spaces."""
    return f"{namespace} {key} {value}"
