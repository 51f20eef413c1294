"""Which objects of one kind select something by its labels, without a look at each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from koordinator.api.meta import Object, ObjectMeta
from koordinator.kube.informer import Informer
from koordinator.model.label_selector import CompiledSelector

O = TypeVar("O", bound=Object)  # noqa: E741


class SelectorIndex(Generic[O]):
    """Objects with a selector are indexed by their namespace and by one label that everything they select must have:
    so a pod without a controller costs a look at the few that ask for one of its labels, however many others there
    are."""

    def __init__(self, name: str, objects: Informer[O], selector: Callable[[O], CompiledSelector]) -> None:
        """``name`` is that of the index in the informer."""
        self._objects = objects
        self._selector = selector
        self._name = name
        objects.add_index(name, self._place)

    def selecting(self, metadata: ObjectMeta) -> list[O]:
        """The objects of the same namespace whose selectors match the labels."""
        places = [
            _place(metadata.namespace),
            *(_place(metadata.namespace, *label) for label in metadata.labels.items()),
        ]
        candidates = (each for place in places for each in self._objects.by_index(self._name, place))
        return [each for each in candidates if self._selector(each).matches(metadata.labels)]

    def _place(self, obj: O) -> tuple[str, ...]:
        selector = self._selector(obj)
        if selector.nothing:
            return ()
        label = min(selector.equalities, default=None)
        return (_place(obj.metadata.namespace, *(label or ())),)


def _place(namespace: str, *label: str) -> str:
    """Names, keys and values have no spaces."""
    return " ".join((namespace, *label))
