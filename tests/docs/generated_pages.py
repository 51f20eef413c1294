"""Pages that a program writes: how they are written, what their tables look like, and whether they are current.

A page that names tests names their node ids (``tests/…/test_x.py::test_y``), and each of them is there.
"""

from __future__ import annotations

import ast
import difflib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown, with a line break at its end."""
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) + "\n"


def write_or_print(pages: Mapping[Path, str], arguments: Sequence[str]) -> None:
    """Write the pages, or print them one after the other with ``--print``."""
    if arguments == ["--print"]:
        sys.stdout.write("".join(pages.values()))
        return
    for path, text in pages.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def stale_lines(pages: Mapping[Path, str]) -> list[str]:
    """Where the files are not as the pages, as lines of a unified diff; none when all are current."""
    found: list[str] = []
    for path, text in pages.items():
        there = path.read_text().splitlines() if path.is_file() else []
        name = str(path.relative_to(ROOT))
        found += difflib.unified_diff(there, text.splitlines(), name, name, lineterm="")
    return found


def absent_tests(named: Iterable[str]) -> list[str]:
    """Those of the node ids that no file has."""
    return [test for test in dict.fromkeys(named) if test not in node_ids(test.partition("::")[0])]


@cache
def node_ids(path: str) -> frozenset[str]:
    """The node ids of a file, without parameters; none where there is no such file. By parsing it: to collect them
    would import most of the project. Slow ones are left out: neither `make test` nor `make test-real` runs them."""
    text = (ROOT / path).read_text() if (ROOT / path).is_file() else ""
    is_slow = re.search(r"^pytestmark = .*\bmark\.slow", text, re.MULTILINE)
    return frozenset() if is_slow else frozenset(_node_ids(ast.parse(text), path))


def _node_ids(node: ast.AST, prefix: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) if name.startswith("test_"):
                if not any("mark.slow" in ast.unparse(decorator) for decorator in child.decorator_list):
                    yield f"{prefix}::{name}"
            case ast.ClassDef(name) if name.startswith("Test"):
                yield from _node_ids(child, f"{prefix}::{name}")
