"""``kubectl get`` of custom resources: the columns that a definition prints, and the JSONPaths of their cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.resource import Column
from koordinator.cluster.strategy.table import AGE, NAME, age

_STEP: Final = re.compile(
    r"""\.?((?:[A-Za-z0-9_\-/]|\\.)+)|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]|\[(\*|-?\d+)\]"""
)
_FILTER: Final = re.compile(r"""\[\?\(@\.([\w.\-]+)\s*==\s*["']([^"']*)["']\)\]""")


def columns_of(printed: Sequence[Document]) -> Sequence[Column]:
    """``printed`` are a version's additionalPrinterColumns."""
    if not printed:
        return (NAME[0], AGE[0])
    return (
        NAME[0],
        *(
            Column(
                entry["name"],
                entry.get("type") or "string",
                entry.get("format") or "",
                entry.get("description") or "",
                entry.get("priority") or 0,
            )
            for entry in printed
        ),
    )


def row_of(printed: Sequence[Document], obj: Document, now: datetime) -> list[Any]:
    name = obj["metadata"].get("name") or ""
    if not printed:
        return [name, AGE[1](obj, now)]
    return [name, *(_cell(obj, entry, now) for entry in printed)]


def _cell(obj: Document, entry: Document, now: datetime) -> Any:
    """An absent value is null, which kubectl shows as ``<none>`` or nothing."""
    found = find(obj, entry["jsonPath"])
    if not found:
        return None
    value, kind = found[0], entry.get("type")
    if kind == "date":
        return age(value, now) if isinstance(value, str) else "<unknown>"
    if kind == "integer":
        return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if kind == "number":
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    return text(value)  # of several, the real server shows the first


def text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return msgspec.json.encode(value).decode()


def find(obj: Any, path: str) -> list[Any]:
    """The values at a simple JSONPath: fields, ``['a.b']``, indexes, ``[*]`` and ``[?(@.type=="Ready")]``."""
    values = [obj]
    rest = path.strip("{}").removeprefix("$")
    while rest:
        condition = _FILTER.match(rest)
        step = condition or _STEP.match(rest)
        if step is None:
            return []
        values = _filtered(values, step) if condition else _stepped(values, step)
        rest = rest[step.end() :]
    return [value for value in values if value is not None]


def _filtered(values: list[Any], step: re.Match[str]) -> list[Any]:
    path, wanted = step.groups()
    items = [item for value in values if isinstance(value, list) for item in value]
    return [item for item in items if [text(found) for found in find(item, path)] == [wanted]]


def _stepped(values: list[Any], step: re.Match[str]) -> list[Any]:
    plain, single, double, index = step.groups()
    if index is None:
        written = plain if plain is not None else single if single is not None else double
        name = re.sub(r"\\(.)", r"\1", written)
        return [value[name] for value in values if isinstance(value, dict) and name in value]
    lists = [value for value in values if isinstance(value, list)]
    if index == "*":
        return [item for value in lists for item in value]
    at = int(index)
    return [value[at] for value in lists if -len(value) <= at < len(value)]
