"""ConfigMaps: which keys they may hold, and how much."""

from __future__ import annotations

from koordinator.api.document import Document
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy import tables
from koordinator.cluster.strategy.causes import invalid, too_long
from koordinator.cluster.strategy.data_keys import MAX_SIZE, check_immutable, check_key, size_of_bytes
from koordinator.cluster.strategy.object_strategy import ObjectStrategy

_WHOLE_OBJECT = "[]"
"""What the real server prints for a field without a name."""


class ConfigMapStrategy(ObjectStrategy):
    def __init__(self) -> None:
        super().__init__("v1", "ConfigMap", table=tables.CONFIG_MAP)

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        causes = check_immutable(obj, old, ("data", "binaryData"))
        for key in data:
            causes += check_key("data", key)
            if key in binary:
                causes.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        causes += [cause for key in binary for cause in check_key("binaryData", key)]
        size = sum(len(value.encode()) for value in data.values()) + sum(map(size_of_bytes, binary.values()))
        return [*causes, too_long(_WHOLE_OBJECT, MAX_SIZE)] if size > MAX_SIZE else causes
