"""Scenarios: command lines of kubectl that are run in order, in a namespace of their own, and the files they name."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).parent / "scenarios"
_READING: Final = frozenset(
    ("api-resources", "api-versions", "auth", "describe", "diff", "events", "explain", "get", "top", "wait")
)
_READING_ROLLOUTS: Final = frozenset(("history", "status"))


@dataclass(frozen=True, slots=True)
class Line:
    """One command line, without the word kubectl. ``variables`` are what stands before it, as in a shell."""

    text: str
    differs: str = ""
    """Why the embedded server gives something else than the real one; empty where it gives the same."""

    @property
    def variables(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self._words[: self._start])

    @property
    def arguments(self) -> list[str]:
        return self._words[self._start :]

    @property
    def reads(self) -> bool:
        """It can be run again: controllers may not have come to what it shows."""
        verb, *others = self.arguments
        return verb in _READING or (verb == "rollout" and others[0] in _READING_ROLLOUTS)

    @property
    def _words(self) -> list[str]:
        return shlex.split(self.text)

    @property
    def _start(self) -> int:
        return next(index for index, word in enumerate(self._words) if not word.split("=")[0].isupper())


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    lines: tuple[Line, ...]
    files: dict[str, str]
    """Name -> contents, beside which the lines are run."""
    cluster_wide: bool
    """It writes or shows what is in no namespace, or depends on it: it is played beside no other such scenario."""


def read_scenarios() -> dict[str, Scenario]:
    """By name."""
    return {path.stem: _scenario(path) for path in sorted(FOLDER.glob("*.yaml"))}


def _scenario(path: Path) -> Scenario:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    lines = tuple(Line(each) if isinstance(each, str) else Line(**each) for each in document["lines"])
    return Scenario(path.stem, lines, document.get("files", {}), document.get("cluster_wide", False))
