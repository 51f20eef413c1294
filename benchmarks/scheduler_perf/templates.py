"""Object templates: YAML with the few bits of Go's text/template that scheduler_perf uses.

These are ``{{.Index}}``, ``{{.Count}}``, whole numbers, and ``{{div A B}}`` and ``{{mod A B}}`` of such values.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

from koordinator.base.errors import ConfigurationError
from koordinator.base.strict_yaml import load_documents

Document = dict[str, Any]

_ACTION: Final = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ALLOWED: Final = ".Index, .Count, a whole number, or div or mod of two of these"


class Template:
    """One file. Documents that are handed out may be shared: they are not to be changed."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._fixed = None if _ACTION.search(text) else self._parse(text)
        if self._fixed is None:
            self._parse(self._filled(0, 1))

    def document(self, index: int = 0, count: int = 1) -> Document:
        """The ``index``-th of ``count`` objects."""
        if self._fixed is not None:
            return self._fixed
        document: Document = yaml.load(self._filled(index, count), _LOADER)  # the strict reading was in __init__
        return _with_json_names(document)

    def _parse(self, text: str) -> Document:
        documents = load_documents(text, self._source)
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise ConfigurationError(self._source, "the document", "one object")
        document: Document = documents[0]
        return _with_json_names(document)

    def _filled(self, index: int, count: int) -> str:
        return _ACTION.sub(lambda action: str(self._value(action[1], index, count)), self._text)

    def _value(self, action: str, index: int, count: int) -> int:
        operands = {".Index": index, ".Count": count}

        def operand(word: str) -> int:
            return operands[word] if word in operands else int(word)

        try:
            match action.split():
                case ["div", left, right]:
                    return operand(left) // operand(right)
                case ["mod", left, right]:
                    return operand(left) % operand(right)
                case [word]:
                    return operand(word)
                case _:
                    raise ConfigurationError(self._source, action, _ALLOWED)
        except (ValueError, ZeroDivisionError) as error:
            raise ConfigurationError(self._source, action, _ALLOWED) from error


def _with_json_names(document: Document) -> Document:
    """Some templates write fields of spread constraints with a capital: Go reads them, an API server does not."""
    for constraint in (document.get("spec") or {}).get("topologySpreadConstraints", ()):
        for name in [name for name in constraint if name[0].isupper()]:
            constraint[name[0].lower() + name[1:]] = constraint.pop(name)
    return document


class Templates:
    """The templates below one folder, each read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, Template] = {}

    def at(self, path: str) -> Template:
        """Raises ConfigurationError when there is no such file or it is no template."""
        if path not in self._read:
            file = self._folder / path
            try:
                text = file.read_text()
            except OSError as error:
                raise ConfigurationError("a template", str(file), f"a file that can be read ({error})") from error
            self._read[path] = Template(text, str(file))
        return self._read[path]
