"""Patterns as the real server understands them: Go's syntax, matched in a time that grows with the text alone.

Whoever may define a resource could stop the server for everyone with a pattern such as ``(a+)+$`` if a search went back
on its steps, as that of Python does. RE2 never does, and is what Go's own implementation was made from.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import re2

from koordinator.base.errors import KoordinatorError

_LONGEST: Final = 64 << 10
"""Characters of a pattern."""
_MEMORY: Final = 1 << 20
"""Bytes that one compiled pattern may take, which bounds how many steps it takes for one character, too."""
_REMEMBERED: Final = 4096
_TOO_LARGE: Final = "expression too large"
_GO_WORDS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
}
_OF_THE_WHOLE: Final = ("missing )", "unexpected )")
"""Where Go shows the whole pattern."""

_LOOK_BEHIND: Final = ("(?<=", "(?<!")
"""What Go takes for a group with a bad name."""


class PatternError(KoordinatorError):
    """A pattern that does not compile; the text is Go's where it is one of Go's."""


@lru_cache(maxsize=_REMEMBERED)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether the pattern is found in a text. Raises PatternError."""
    if len(pattern) > _LONGEST:
        raise PatternError(f"error parsing regexp: {_TOO_LARGE}: at most {_LONGEST} characters are allowed")
    _refuse_single_bytes(pattern)
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MEMORY
    try:
        search = re2.compile(pattern.encode(), options).search
        # Its answer comes ten times as fast. It may say no when it has run out of memory, but a yes is a yes.
        quick = re2.Set.SearchSet(options)
        quick.Add(pattern.encode())
        quick.Compile()
    except re2.error as error:
        raise PatternError(f"error parsing regexp: {_in_go_words(pattern, error)}") from error

    def matches(text: str) -> bool:
        encoded = text.encode()
        return bool(quick.Match(encoded)) or search(encoded) is not None

    return matches


def _refuse_single_bytes(pattern: str) -> None:
    r"""Go has no ``\C``, which takes half a character for one."""
    escaped = quoted = False
    for at, character in enumerate(pattern):
        if quoted:
            quoted = not pattern.startswith("\\E", at)
        elif escaped:
            if character == "C":
                raise PatternError(r"error parsing regexp: invalid escape sequence: `\C`")
            escaped, quoted = False, character == "Q"
        else:
            escaped = character == "\\"


def _in_go_words(pattern: str, error: Exception) -> str:
    problem, _, where = _text(error).partition(": ")
    if problem == "pattern too large - compile failed":
        return _TOO_LARGE
    if where in _LOOK_BEHIND:
        return f"invalid named capture: `{pattern[pattern.find(where) :]}`"
    shown = pattern if problem in _OF_THE_WHOLE else where
    return f"{_GO_WORDS.get(problem, problem)}: `{shown}`"


def _text(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
