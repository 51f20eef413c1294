"""What people get wrong when they write JSON, by chance: one thing in one place."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

from tests.real.overcommit.node_case import Document

_VALUES: Final[tuple[Any, ...]] = (None, 7, 7.0, "7", "", True, [], {}, [7], {"name": 7}, [None], 10**20)


class Mistake(str):
    """A text of which only a program can say whether it is taken."""

    __slots__ = ()


def mistaken(chance: Random, document: Document) -> Mistake:
    """The text of a document in which one member has another name, or another value, or comes twice."""
    copy = json.loads(json.dumps(document))
    place = chance.choice(_objects(copy))
    name = chance.choice(sorted(place)) if place else "name"
    match chance.randrange(5):
        case 0:
            place[chance.choice([name.upper(), name.lower(), name.capitalize()])] = place.pop(name, 7)
        case 1:
            place[chance.choice(["unknown", f"{name}s", "extensions"])] = chance.choice(_VALUES)
        case 2:
            return Mistake(json.dumps(copy) + chance.choice([" ", "\n", "}", "x", "{}"]))
        case _:
            place[name] = chance.choice(_VALUES)
    return Mistake(json.dumps(copy))


def _objects(value: Any) -> list[Document]:
    """All of them, the outermost first."""
    if isinstance(value, dict):
        return [value, *(found for part in value.values() for found in _objects(part))]
    if isinstance(value, list):
        return [found for part in value for found in _objects(part)]
    return []
