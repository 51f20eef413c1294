"""Which pods a selector selects, without a look at each pod."""

from __future__ import annotations

from typing import Final

from koordinator.api.kinds import PODS
from koordinator.api.pod import Pod
from koordinator.kube.informer_set import InformerSet
from koordinator.model.label_selector import CompiledSelector

_PLACES: Final = "namespace and label"


class LabelledPods:
    """Pods are indexed by their namespace and by each of their labels."""

    def __init__(self, informers: InformerSet) -> None:
        self.informer = informers.informer(PODS, indexes={_PLACES: _places})

    def selected(self, namespace: str, selector: CompiledSelector) -> list[Pod]:
        if selector.nothing:
            return []
        label = min(selector.equalities, default=())
        pods = self.informer.by_index(_PLACES, _place(namespace, *label))
        return [pod for pod in pods if selector.matches(pod.metadata.labels)]


def _places(pod: Pod) -> tuple[str, ...]:
    metadata = pod.metadata
    labels = (_place(metadata.namespace, *label) for label in metadata.labels.items())
    return (_place(metadata.namespace), *labels)


def _place(namespace: str, *label: str) -> str:
    """Names, keys and values have no spaces."""
    return " ".join((namespace, *label))
