"""Descriptions for the manifests: the docstrings of the types and of their fields, which Python itself drops."""

from __future__ import annotations

import ast
import importlib
import inspect
from functools import cache

import msgspec

from koordinator.api.meta import Object, WireStruct


def describe(struct: type[msgspec.Struct], field: str = "") -> str:
    """What the source says about a struct or one of its fields, on one line; empty when it says nothing.

    Also empty where the sources are not installed: descriptions are for people, nothing depends on them.
    """
    owners = struct.__mro__ if field else (struct,)
    for owner in owners:
        if owner in (WireStruct, Object, msgspec.Struct, object):
            break
        text = _docstrings(owner.__module__).get((owner.__qualname__, field))
        if text:
            return " ".join(text.split())
    return ""


@cache
def _docstrings(module: str) -> dict[tuple[str, str], str]:
    """(class, field or "") -> docstring, for every class of a module."""
    found: dict[tuple[str, str], str] = {}
    try:
        source = inspect.getsource(importlib.import_module(module))
    except OSError:
        return found
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ClassDef):
            found.update(_class_docstrings(statement))
    return found


def _class_docstrings(definition: ast.ClassDef) -> dict[tuple[str, str], str]:
    found = {(definition.name, ""): ast.get_docstring(definition) or ""}
    field = ""
    for statement in definition.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            field = statement.target.id
        elif field and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            found[definition.name, field] = str(statement.value.value)
            field = ""
        else:
            field = ""
    return found
