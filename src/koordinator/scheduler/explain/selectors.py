"""Label selectors in the words of kubectl: ``app=web, tier in (a, b), !canary``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from koordinator.model.label_selector import CompiledSelector

_Plain = tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str, Sequence[str]]], bool]
_SHOWN: Final = 3


def selector_text(selector: CompiledSelector) -> str:
    """What the selector asks for, such as ``app=web``; "any labels" when it asks for nothing."""
    equalities, others, nothing = cast("_Plain", selector.key)
    if nothing:
        return "no labels at all"
    asked = [f"{key}={value}" for key, value in equalities] + [_requirement(*each) for each in others]
    return ", ".join(asked) or "any labels"


def some(names: Iterable[str], count: int | None = None) -> str:
    """The first few of ``names``, and how many more there are of ``count`` in all (None: of the names)."""
    listed = list(names)
    shown = listed[:_SHOWN]
    more = (len(listed) if count is None else count) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _requirement(key: str, operator: str, values: Sequence[str]) -> str:
    match operator:
        case "In":
            return f"{key} in ({', '.join(values)})"
        case "NotIn":
            return f"{key} not in ({', '.join(values)})"
        case "Exists":
            return key
        case _:
            return f"!{key}"
