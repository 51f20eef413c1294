"""Which old value a part of an updated object had: what was wrong before and has not changed is let pass.

The real server (k8s.io/apiserver, cel/common) finds the old value of a field by its name, and that of an item only in
a list of type ``map``, by its keys. A field that the schema does not name has no old value.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from koordinator.api.document import same
from koordinator.cluster.structural_schema.node import Node

_ABSENT: Final = object()


class Correlated(NamedTuple):
    """A value with the one that it had before."""

    new: Any
    old: Any
    node: Node

    def member(self, name: str) -> Correlated | None:
        if not isinstance(self.new, dict) or not isinstance(self.old, dict):
            return None
        node = self.node.properties.get(name) or self.node.additional_node
        if node is None or name not in self.old or name not in self.new:
            return None
        return Correlated(self.new[name], self.old[name], node)

    def item(self, index: int) -> Correlated | None:
        node = self.node.items
        if self.node.list_type != "map" or node is None or not isinstance(self.old, list):
            return None
        keys = self._keys(self.new[index])
        for old in self.old:
            if keys is not None and self._keys(old) == keys:
                return Correlated(self.new[index], old, node)
        return None

    def unchanged(self) -> bool:
        """As the real server finds out: an object with a field that the schema does not name counts as changed."""
        if isinstance(self.new, dict) and isinstance(self.old, dict):
            members = [self.member(name) for name in self.new]
            return len(self.new) == len(self.old) and all(part is not None and part.unchanged() for part in members)
        if self.node.list_type == "map" and isinstance(self.new, list) and isinstance(self.old, list):
            items = [self.item(index) for index in range(len(self.new))]
            return len(self.new) == len(self.old) and all(part is not None and part.unchanged() for part in items)
        return same(self.new, self.old)

    def _keys(self, item: Any) -> list[Any] | None:
        if not isinstance(item, dict):
            return None
        keys = [item.get(name, _ABSENT) for name in self.node.list_map_keys]
        return None if _ABSENT in keys else [(type(key), key) for key in keys]
