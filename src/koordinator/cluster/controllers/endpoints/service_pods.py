"""What both controllers of endpoints watch: Services and the pods that they select."""

from __future__ import annotations

from collections.abc import Callable

from koordinator.api.meta import ObjectMeta
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.endpoints.pod_endpoints import PodEndpoint, pod_endpoints
from koordinator.cluster.controllers.endpoints.types import SERVICES, Service
from koordinator.cluster.controllers.labelled_pods import LabelledPods
from koordinator.cluster.controllers.selector_index import SelectorIndex
from koordinator.model.label_selector import NOTHING, CompiledSelector


class ServicePods:
    """The pods of each Service."""

    def __init__(self, context: ControllerContext, name: str) -> None:
        """``name`` is that of the controller."""
        self._name = name
        self.services = context.informers.informer(SERVICES)
        self._pods = LabelledPods(context.informers)
        self._selecting = SelectorIndex(f"pods of {name}", self.services, _selector)

    def follow(self, add: Callable[[str], None], gone: Callable[[Service], None] | None = None) -> None:
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

        self._pods.informer.add_handlers(
            name=self._name,
            on_add=lambda pod, _: changed(pod.metadata),
            on_update=lambda old, new: changed(old.metadata, new.metadata),
            on_delete=lambda pod: changed(pod.metadata),
        )

    def endpoints(self, service: Service) -> list[PodEndpoint]:
        """Of a Service with a selector."""
        return pod_endpoints(service, self._pods.selected(service.metadata.namespace, _selector(service)))


def _selector(service: Service) -> CompiledSelector:
    return CompiledSelector(frozenset(service.spec.selector.items())) if service.lists_pods else NOTHING
