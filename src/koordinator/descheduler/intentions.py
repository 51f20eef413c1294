"""What a controller would do, said and not done, for dry runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from koordinator.api.codec import convert, to_document
from koordinator.api.document import Document
from koordinator.api.meta import Object
from koordinator.model.patch.strategic import apply_strategic_patch

O = TypeVar("O", bound=Object)  # noqa: E741

_ROUNDS: Final = 32
"""More decisions than this in a row do not come out of one state of the cluster."""


async def intentions_for(obj: O, decide: Callable[[O], Awaitable[tuple[O, Sequence[str]]]]) -> list[str]:
    """The actions that follow from the cluster as it is, each once and in order, as sentences without a subject.

    ``decide`` returns the object as the next plan would leave it, and the plan's actions on anything else. They are
    not carried out, so that the decisions come to rest where the first of them would have to show."""
    found: dict[str, None] = {}
    for _ in range(_ROUNDS):
        changed, actions = await decide(obj)
        found |= dict.fromkeys(actions)
        if changed == obj:
            break
        obj = changed
    return list(found)


def merged(obj: O, patch: Document) -> O:
    """The object with a merge patch in it that replaces no list by a part of it."""
    return convert(apply_strategic_patch(to_document(obj), patch, None), type(obj))
