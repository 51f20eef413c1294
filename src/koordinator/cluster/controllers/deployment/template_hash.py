"""The hash that tells the ReplicaSets of a Deployment apart: the label ``pod-template-hash`` and the end of the name.

Kubernetes hashes Go's dump of the template, which is not reproduced here: only the form is the same. No more is needed,
as whether a ReplicaSet is that of a template is found out by comparing templates.
"""

from __future__ import annotations

from typing import Final

import msgspec

from koordinator.api.document import Document

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Without vowels and what looks like them, so that no words come about."""
_OFFSET, _PRIME = 0x811C9DC5, 0x01000193


def template_hash(template: Document, collisions: int | None) -> str:
    """Up to ten characters of the alphabet of ``rand.SafeEncodeString``. ``collisions``: how often the name that was
    made of it was taken by something else."""
    text = msgspec.json.encode(template, order="sorted")
    if collisions is not None:
        text += collisions.to_bytes(8, "little")
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(_fnv1a(text)))


def _fnv1a(text: bytes) -> int:
    """FNV-1a of 32 bits."""
    value = _OFFSET
    for byte in text:
        value = ((value ^ byte) * _PRIME) & 0xFFFFFFFF
    return value
