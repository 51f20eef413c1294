"""YAML in which a duplicate key of a mapping is an error; PyYAML would silently use the last one."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from pathlib import Path
from typing import Any, Final

import yaml

from koordinator.base.errors import ConfigurationError

CONSTRUCTOR_ERRORS: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What PyYAML raises for a scalar that is no date, number or set of its tag, and for what is nested too deep."""
_LARGEST: Final = 1_000_000


class _DuplicateKeyError(yaml.YAMLError):
    def __init__(self, key: Any, line: int) -> None:
        super().__init__()
        self.key = key
        self.line = line


class _StrictLoader(yaml.SafeLoader):
    """The safe loader, which also rejects duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                break  # the base class rejects it, with its position
            if key in seen and key_node.tag != "tag:yaml.org,2002:merge":
                raise _DuplicateKeyError(key, key_node.start_mark.line + 1)
            seen.add(key)
        return super().construct_mapping(node, deep)


def load_documents(text: str, source: str) -> list[Any]:
    """Return all non-empty documents of the text. Raises ConfigurationError."""
    try:
        documents = list(yaml.load_all(text, _StrictLoader))
    except _DuplicateKeyError as error:
        where, allowed = f"{source}: line {error.line}", "a key may stand only once in a mapping"
        raise ConfigurationError(where, error.key, allowed) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}: line {mark.line + 1}, column {mark.column + 1}" if mark is not None else source
        raise ConfigurationError(where, "the document", f"YAML ({error.problem or error.context})") from error
    except (yaml.YAMLError, *CONSTRUCTOR_ERRORS) as error:
        raise ConfigurationError(source, "the document", f"YAML ({error or type(error).__name__})") from error
    if _size(documents, {}) > _LARGEST:
        raise ConfigurationError(source, "the document", f"one of at most {_LARGEST} values, aliases written out")
    return [document for document in documents if document is not None]


def _size(value: Any, known: dict[int, float]) -> float:
    """How many values there are when each alias is written out: infinitely many, if one is inside of itself."""
    if not isinstance(value, dict | list | set | tuple):
        return 1
    if id(value) not in known:
        known[id(value)] = inf
        inner = (*value.keys(), *value.values()) if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_size(each, known) for each in inner)
    return known[id(value)]


def load_document(text: str, source: str, kind: str, config_map_key: str = "") -> dict[str, Any]:
    """Return the one document of the text, which must be a mapping: a ``kind``, or a ConfigMap that holds one as text
    under ``config_map_key``. Raises ConfigurationError."""
    documents = load_documents(text, source)
    if len(documents) != 1:
        raise ConfigurationError(source, f"{len(documents)} documents", f"one {kind}")
    if not isinstance(documents[0], dict):
        raise ConfigurationError(source, documents[0], f"a {kind}")
    document: dict[str, Any] = documents[0]
    if not config_map_key or document.get("kind") != "ConfigMap":
        return document
    data = document.get("data")
    inner = data.get(config_map_key) if isinstance(data, dict) else None
    where = f"{source}: data[{config_map_key}]"
    if not isinstance(inner, str):
        raise ConfigurationError(where, inner, f"a {kind} as text")
    return load_document(inner, where, kind, config_map_key)


def read_configuration_file(flag: str, path: Path) -> str:
    """Return the text of the file that ``flag`` names. Raises ConfigurationError."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(flag, str(path), f"a readable YAML file ({error})") from error
