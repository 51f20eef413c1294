"""How much a program holds: the sizes of all containers that its objects reach, by the attribute that they are held
in."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator
from functools import partial
from types import BuiltinMethodType, CellType, FunctionType, MethodType
from typing import Any, Final

import numpy as np

_OURS: Final = "koordinator."
_LISTS: Final = (list, tuple, set, frozenset, deque)


def held_sizes(root: object, bounded: Collection[str] = ()) -> dict[str, int]:
    """The number of elements by ``Class.attribute``, with a ``[]`` for each container around; of what is ours or a
    container. What elements themselves hold is added up over all of them. What the attributes ``bounded`` hold is left
    out."""
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    todo: list[tuple[str, object]] = [("", root)]
    while todo:
        path, found = todo.pop()
        if path in bounded:
            continue
        if id(found) in seen or isinstance(found, (str, bytes, int, float, type, np.generic)) or found is None:
            continue
        seen.add(id(found))
        if isinstance(found, np.ndarray):
            sizes[path] += found.size
        elif isinstance(found, dict):
            sizes[path] += len(found)
            todo += [(f"{path}[]", each) for pair in found.items() for each in pair]
        elif isinstance(found, _LISTS):
            sizes[path] += len(found)
            todo += [(f"{path}[]", each) for each in found]
        else:
            todo += _parts(path, found)
    return {path: size for path, size in sizes.items() if size}


def _parts(path: str, found: object) -> Iterator[tuple[str, object]]:
    if isinstance(found, MethodType | BuiltinMethodType):
        yield path, found.__self__
    elif isinstance(found, partial):
        yield from ((path, each) for each in (found.func, found.args, found.keywords))
    elif isinstance(found, FunctionType):
        yield from ((f"{found.__qualname__}()", each) for each in found.__closure__ or ())
    elif isinstance(found, CellType):
        yield path, found.cell_contents
    elif type(found).__module__.startswith(_OURS) or type(found).__module__.startswith("prometheus_client"):
        yield from ((f"{type(found).__name__}.{name}", value) for name, value in _attributes(found))


def _attributes(found: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(found, "__dict__", {}).items()
    for each in type(found).__mro__:
        slots = each.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(found, name):
                yield name, getattr(found, name)
    for name in getattr(type(found), "__struct_fields__", ()):
        yield name, getattr(found, name)
