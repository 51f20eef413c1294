"""One change to a valid object: a field goes, is of another type, out of its bounds, unknown or there twice."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

Document = dict[str, Any]
Path = tuple[str | int, ...]

_STRINGS: Final = ("", "zzz", "Bad Name!", "-x", "a" * 300, "1")
_NUMBERS: Final = (-1, 0, 2**31 - 1, 2**31, 2**63, 1.5, 70_000)
_TWICE: Final = "\u2063twice"
"""Stands in a document for the second of two members of one name, which no document can have."""


@dataclass(frozen=True)
class Mutation:
    """What happens to the value at ``path``."""

    path: Path
    name: str
    value: Any = None

    def __str__(self) -> str:
        return f"{shown(self.path)} {self.name}"

    def applies(self, document: Document) -> bool:
        value: Any = document
        for step in self.path:
            is_there = (
                step in value if isinstance(value, dict) else isinstance(value, list) and step in range(len(value))
            )
            if not is_there:
                return False
            value = _at(value, step)
        return True

    def body(self, document: Document) -> bytes:
        """The document with the change, as it is sent."""
        changed = copy.deepcopy(document)
        holder: Any = changed
        for step in self.path[:-1]:
            holder = holder[step]
        _CHANGES[self.name](holder, self.path[-1], self.value)
        return encoded(changed).replace(_TWICE.encode(), b"")


def json_patch(mutation: Mutation, document: Document) -> bytes:
    """The change as RFC 6902 has it; what cannot be there twice is removed twice."""
    value: Any = document
    for step in mutation.path:
        value = value[step]
    path = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in mutation.path)
    remove = {"op": "remove", "path": path}
    operations: dict[str, Any] = {
        "set": [{"op": "replace", "path": path, "value": mutation.value}],
        "delete": [remove],
        "unknown": [{"op": "add", "path": f"{path}/unknownField", "value": mutation.value}],
        "twice": [remove, remove],
    }
    if mutation.name == "repeat":
        return encoded([{"op": "add", "path": f"{path}/-", "value": value[0]}])
    return encoded(operations[mutation.name])


def encoded(value: Any) -> bytes:
    """As Go clients write it, compact and in the order of the names: the real server compares raw data as text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def _at(holder: Any, step: Any) -> Any:
    return holder[step]


def _set(holder: Any, step: Any, value: Any) -> None:
    holder[step] = value


def _delete(holder: Any, step: Any, value: Any) -> None:
    del holder[step]


def _unknown(holder: Any, step: Any, value: Any) -> None:
    holder[step]["unknownField"] = value


def _twice(holder: Any, step: Any, value: Any) -> None:
    holder[f"{step}{_TWICE}"] = holder[step]


def _repeat(holder: Any, step: Any, value: Any) -> None:
    holder[step] = [*holder[step], copy.deepcopy(holder[step][0])]


_CHANGES: Final = {"set": _set, "delete": _delete, "unknown": _unknown, "twice": _twice, "repeat": _repeat}


def shown(path: Path) -> str:
    """``spec.containers[0].name``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def choose(document: Document, random: Random, root: str = "") -> Mutation:
    """A change of one place; each place of the object, or of what ``root`` names in it, is as likely as any other."""
    places = [(p, v) for p, v in _places(document, ()) if p[0] not in ("apiVersion", "kind")]
    path, value = random.choice([(p, v) for p, v in places if root in ("", p[0])])
    return random.choice(list(_mutations(path, value)))


def _places(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if path:
        yield path, value
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, member in members:
        yield from _places(member, (*path, step))


def _mutations(path: Path, value: Any) -> Iterator[Mutation]:
    yield Mutation(path, "delete")
    yield Mutation(path, "set", None)
    if isinstance(path[-1], str):
        yield Mutation(path, "twice")
    others: tuple[Any, ...] = ()
    if isinstance(value, str):
        others = (*_STRINGS, 5, [], True)
    elif isinstance(value, bool):
        others = (not value, "yes", 1)
    elif isinstance(value, (int, float)):
        others = (*_NUMBERS, "zzz", {})
    elif isinstance(value, dict):
        others = ({}, "zzz", [])
        yield Mutation(path, "unknown", 1)
    elif isinstance(value, list):
        others = ([], {}, "zzz", [None])
        if value:
            yield Mutation(path, "repeat")
    yield from (Mutation(path, "set", other) for other in others if other != value or type(other) is not type(value))
