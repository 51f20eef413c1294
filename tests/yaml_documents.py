"""Reads YAML with libyaml's loader: PyYAML's own takes a second for the definitions of one installation."""

from __future__ import annotations

from typing import Any

import yaml

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def yaml_documents(text: str) -> list[Any]:
    """All documents of one text."""
    return list(yaml.load_all(text, Loader=_Loader))
