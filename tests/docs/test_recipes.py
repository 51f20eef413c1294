"""What recipes say of events and figures is so: the events are recorded, the figures are those that were measured."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

RECIPES = ROOT / "docs/recipes"


def column(page: str, number: int) -> list[str]:
    """One column of all tables of a page, without their heads."""
    rows = re.findall(r"^\|(?!\s*-)(.+)\|$", (RECIPES / page).read_text(), re.MULTILINE)
    return [row.split(" | ")[number].strip() for row in rows if row.count(" | ") > number]


def test_each_event_that_is_explained_is_recorded_by_some_program() -> None:
    explained = {name for cell in column("read-an-event.md", 0) for name in re.findall(r"`(\w+)`", cell)}
    source = "".join(path.read_text() for path in (ROOT / "src/koordinator").rglob("*.py"))
    assert len(explained) > 20
    assert {name for name in explained if f'"{name}"' not in source} == set()


def test_each_figure_of_memory_was_measured() -> None:
    figures = {cell for cell in column("size-the-programs.md", 2) if cell.endswith("MiB")}
    measured = (ROOT / "docs/performance.md").read_text()
    assert len(figures) > 5
    assert {figure for figure in figures if figure not in measured} == set()
