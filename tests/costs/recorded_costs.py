"""The costs on record: a file for each program, with a part for each family of Python, which makes calls in its way."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.costs.figures import Cost

PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
_FOLDER: Final = Path(__file__).parent / "recorded"


def read_costs(program: str, python: str) -> dict[str, Cost]:
    """By shape; empty where nothing is recorded for this family of Python."""
    shapes = _read(program).get(python, {})
    return {name: Cost.from_document(document) for name, document in shapes.items()}


def recorded_pythons(program: str) -> list[str]:
    return sorted(_read(program))


def write_costs(program: str, costs: Mapping[str, Cost]) -> None:
    """Those of this family of Python; the others stay."""
    documents = {**_read(program), PYTHON: {name: cost.document() for name, cost in costs.items()}}
    _FOLDER.mkdir(exist_ok=True)
    (_FOLDER / f"{program}.json").write_text(json.dumps(documents, indent=1, sort_keys=True) + "\n")


def _read(program: str) -> dict[str, Any]:
    file = _FOLDER / f"{program}.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found
