"""The table of docs/access.md: which program serves which paths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PAGE: Final = Path(__file__).parents[2] / "docs/access.md"
_HEADING: Final = "| path | programs |"
PROGRAMS: Final = (
    "koord-scheduler", "koord-manager", "koord-descheduler", "koordlet", "koord-device-daemon", "koord-runtime-proxy",
)  # fmt: skip
REST: Final = "…"


@dataclass(frozen=True, slots=True)
class ServedPath:
    """A path, or all that begin like it."""

    text: str
    is_open: bool
    """Whether everybody may see it."""

    def means(self, route: str) -> bool:
        """``route`` is a path as the server has it: its parameters are in braces."""
        plain = re.sub(r"\{[^{}]*\}", "x", route)
        if self.text.endswith(REST):
            return plain.startswith(self.text.removesuffix(REST))
        return plain == self.text

    @property
    def url(self) -> str:
        """In a ClusterRole."""
        return f"{'/pages' if self.text.startswith('/apis/') else ''}{self.text}".replace(REST, "*")

    @property
    def example(self) -> str:
        return self.text.replace(REST, "x")


def documented() -> Mapping[str, list[ServedPath]]:
    """Program -> what it serves by the table."""
    found: dict[str, list[ServedPath]] = {program: [] for program in PROGRAMS}
    for paths, programs, _, who in _rows():
        named = PROGRAMS if programs == "all" else tuple(programs.split(", "))
        for program in named:
            found[program] += [
                ServedPath(text, who.startswith("everybody")) for text in re.findall(r"`([^`]+)`", paths)
            ]
    return found


def _rows() -> Iterator[list[str]]:
    lines = _PAGE.read_text().split(_HEADING, 1)[1].splitlines()[2:]
    for line in lines:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]
