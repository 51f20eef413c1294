"""The JSON merge patch (RFC 7386) that turns one document into another."""

from __future__ import annotations

from koordinator.api.document import Document, same


def merge_difference(old: Document, new: Document) -> Document:
    """Only what differs, so that members that neither document has stay; empty when nothing does. Lists are replaced as
    a whole. Neither document may have nulls."""
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
