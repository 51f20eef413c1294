"""``-o``: the forms in which every command prints what it has found out, and the one place where documents become
JSON or YAML."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any, Final

JSON: Final = "json"
YAML: Final = "yaml"
_HELP: Final = {
    "text": "tables and sentences for people",
    "wide": "a table with more columns",
    "name": "names alone",
    "json": "all that is known, as JSON",
    "yaml": "the same as YAML",
}


def add_output(parser: argparse.ArgumentParser, *forms: str) -> None:
    """``-o`` with these forms; the first is what is printed without it."""
    words = "; ".join(f"{form}: {_HELP[form]}" for form in forms)
    parser.add_argument("-o", "--output", choices=forms, default=forms[0], help=words)


def rendered(form: str, document: Any, text: Callable[[], str], encoding: str = "utf-8") -> str:
    """``document`` as JSON or YAML for a stream of that encoding, or else what ``text`` returns."""
    if form == JSON:
        return json.dumps(document, indent=2, ensure_ascii=not encoding.startswith("utf")) + "\n"
    if form == YAML:
        # Loaded for those who ask for it: it takes as long as everything else of a small command.
        import yaml

        dumped: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=encoding.startswith("utf"))
        return dumped
    return text()
