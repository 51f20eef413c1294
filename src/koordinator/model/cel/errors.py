"""What can be wrong with an expression: what its author is told when it is compiled, and when it is evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class EvaluationError(Exception):
    """An expression has no value for these objects; others may evaluate. The text is that of the real server."""


class CostExceeded(EvaluationError):
    """The expression costs more than one evaluation may."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class TakesLong(BaseException):
    """More work than the caller's loop may wait for: the caller does all of it again elsewhere.

    No ``Exception``, since nothing in an expression may absorb it.
    """


@dataclass(frozen=True, slots=True, order=True)
class Issue:
    """One thing that is wrong with the text of an expression, at a character of it."""

    position: int
    message: str


class CompileError(Exception):
    """The text is no expression, or its types do not fit."""

    def __init__(self, source: str, issues: Sequence[Issue]) -> None:
        self.issues = tuple(sorted(set(issues)))
        super().__init__("\n".join(_shown(source, issue) for issue in self.issues))


def _shown(source: str, issue: Issue) -> str:
    """Two lines with the place below the message, as cel-go prints them."""
    before = source[: issue.position]
    line, column = before.count("\n"), issue.position - (before.rfind("\n") + 1)
    text = source.split("\n")[line].replace("\t", " ")
    marked = "".join("．" if ord(character) > 0x7F else "." for character in text[:column])
    pointer = "＾" if column < len(text) and ord(text[column]) > 0x7F else "^"
    return f"ERROR: <input>:{line + 1}:{column + 1}: {issue.message}\n | {text}\n | {marked}{pointer}"
