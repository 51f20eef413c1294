"""RFC 7396 (``application/merge-patch+json``)."""

from __future__ import annotations

from koordinator.api.document import Document, copied


def apply_merge_patch(original: Document, changes: Document) -> Document:
    """Objects merge, null removes, all else (lists too) replaces. Unchanged parts are shared with the original."""
    merged = dict(original)
    for key, change in changes.items():
        if change is None:
            merged.pop(key, None)
        elif isinstance(change, dict):
            current = merged.get(key)
            merged[key] = apply_merge_patch(current if isinstance(current, dict) else {}, change)
        else:
            merged[key] = copied(change)
    return merged
