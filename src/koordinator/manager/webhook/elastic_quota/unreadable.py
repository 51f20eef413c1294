"""Annotations of quotas that count as absent, since they cannot be read: no reason to refuse a quota, but to say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from koordinator.api.annotations import QUOTA_GUARANTEED, QUOTA_NAMESPACES
from koordinator.api.codec import DecodeError
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.model.quota_tree.annotation_values import read_amounts, read_names

_READ: Final[Mapping[str, tuple[Callable[[str], Any], str]]] = MappingProxyType(
    {
        QUOTA_NAMESPACES: (read_names, 'a JSON list such as ["team-a","team-b"]'),
        QUOTA_GUARANTEED: (read_amounts, 'a JSON object such as {"cpu":"10","memory":"20Gi"}'),
    }
)
_SHOWN: Final = 40
"""So much of a text is repeated: API servers cut warnings off."""


def unreadable_annotations(quota: ElasticQuota) -> list[str]:
    """A warning for each."""
    warnings = []
    for annotation, (read, allowed) in _READ.items():
        text = quota.metadata.annotations.get(annotation, "")
        try:
            read(text)
        except DecodeError:
            warnings.append(f"annotation {annotation} is ignored: {text[:_SHOWN]!r} is not {allowed}")
    return warnings
