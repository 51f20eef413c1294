"""The JSON merge patch (RFC 7386) that makes one document another."""

from __future__ import annotations

from koordinator.api.document import Document, same


def merge_difference(old: Document, new: Document) -> Document:
    """What differs and nothing else, so that members that neither document knows stay; empty when nothing does. Lists
    are replaced whole. Neither document has nulls in it."""
    patch: Document = {}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            deeper = merge_difference(before, value)
            if deeper:
                patch[key] = deeper
        elif key not in old or not same(before, value):
            patch[key] = value
    return patch | dict.fromkeys(old.keys() - new.keys())
