"""Reads a file of changes: YAML, one list, each entry one change. Errors name the field, the value and what is
allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.strict_decoding import decode_strictly
from koordinator.base.errors import ConfigurationError
from koordinator.base.spelling import did_you_mean
from koordinator.base.strict_yaml import load_document
from koordinator.scheduler.configuration import load_configuration
from koordinator.simulate.change import Change, ChangeError
from koordinator.simulate.colocation import colocation_of
from koordinator.simulate.node_changes import AddNodes, Drain, RemoveNodes
from koordinator.simulate.object_changes import Apply, Delete, Scale
from koordinator.simulate.reconfiguration import Reconfigure
from koordinator.simulate.workloads import parse_workload

ReadObjects = Callable[[Sequence[str]], list[Document]]
"""Returns the objects in the files with these paths. Raises ConfigurationError."""


@dataclass(frozen=True)
class _Drain:
    nodes: list[str]
    force: bool = False


@dataclass(frozen=True)
class _RemoveNodes:
    nodes: list[str]


@dataclass(frozen=True)
class _AddNodes:
    like: str
    count: int = 1
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Scale:
    workload: str
    replicas: int
    namespace: str = ""


@dataclass(frozen=True)
class _Apply:
    files: list[str]
    replicas: int | None = None
    namespace: str = ""


@dataclass(frozen=True)
class _Delete:
    object: str
    namespace: str = ""


@dataclass(frozen=True)
class _SchedulerConfig:
    file: str


@dataclass(frozen=True)
class _Colocation:
    file: str


_KINDS: Final[Mapping[str, type[Any]]] = {
    "apply": _Apply,
    "scale": _Scale,
    "delete": _Delete,
    "drain": _Drain,
    "removeNodes": _RemoveNodes,
    "addNodes": _AddNodes,
    "schedulerConfig": _SchedulerConfig,
    "colocation": _Colocation,
}


def read_changes(text: str, source: str, folder: Path, namespace: str, read_objects: ReadObjects) -> list[Change]:
    """The changes of a file. Relative paths in it start at ``folder``. Raises ConfigurationError and ChangeError."""
    document = load_document(text, source, "mapping with the list changes")
    unknown = [name for name in document if name != "changes"]
    if unknown:
        raise ConfigurationError(f"{source}: {unknown[0]}", document[unknown[0]], "no such field; there is changes")
    entries = document.get("changes")
    if not isinstance(entries, list) or not entries:
        raise ConfigurationError(f"{source}: changes", entries, f"a list with at least one of {', '.join(_KINDS)}")
    return [
        _change(entry, f"{source}: changes[{index}]", folder, namespace, read_objects)
        for index, entry in enumerate(entries)
    ]


def _change(entry: Any, where: str, folder: Path, namespace: str, read_objects: ReadObjects) -> Change:
    if not isinstance(entry, dict) or len(entry) != 1:
        raise ConfigurationError(where, entry, f"one of {', '.join(_KINDS)}, and nothing beside it")
    ((name, given),) = entry.items()
    if name not in _KINDS:
        allowed = f"no such change; there are {', '.join(_KINDS)}{did_you_mean(name, _KINDS)}"
        raise ConfigurationError(f"{where}.{name}", given, allowed)
    path = f"{where}.{name}"
    if not isinstance(given, dict):
        raise ConfigurationError(path, given, "a mapping")
    decoded = decode_strictly(given, _KINDS[name], path)
    try:
        return _made(decoded, path, folder, namespace, read_objects)
    except ChangeError as error:
        raise ChangeError(f"{path}: {error}") from error


def _made(given: Any, path: str, folder: Path, namespace: str, read_objects: ReadObjects) -> Change:
    match given:
        case _Apply():
            _at_least(given.replicas, 0, f"{path}.replicas")
            objects = read_objects([str(folder / each) for each in _some(given.files, f"{path}.files")])
            return Apply(objects, given.namespace or namespace, given.replicas)
        case _Scale():
            _at_least(given.replicas, 0, f"{path}.replicas")
            return Scale(parse_workload(given.workload, given.namespace or namespace), given.replicas)
        case _Delete():
            kind, slash, name = given.object.partition("/")
            if not (kind and slash and name):
                raise ConfigurationError(f"{path}.object", given.object, "KIND/NAME is needed")
            return Delete(kind, name, given.namespace or namespace)
        case _Drain():
            return Drain(_some(given.nodes, f"{path}.nodes"), force=given.force)
        case _RemoveNodes():
            return RemoveNodes(_some(given.nodes, f"{path}.nodes"))
        case _AddNodes():
            _at_least(given.count, 1, f"{path}.count")
            return AddNodes(given.like, given.count, tuple(given.labels.items()))
        case _SchedulerConfig():
            return Reconfigure(load_configuration(folder / given.file), given.file)
        case _Colocation():
            return colocation_of(read_objects([str(folder / given.file)]), f"{path}.file")
    raise AssertionError(f"{given!r} is made of no entry")


def _at_least(number: int | None, least: int, path: str) -> None:
    if number is not None and number < least:
        raise ConfigurationError(path, number, f"a number from {least} on")


def _some(names: list[str], path: str) -> list[str]:
    if not names:
        raise ConfigurationError(path, names, "at least one name")
    return names
