"""The keywords of a schema for strings, numbers, lists and objects: a predicate, and the failure where it is false.

Both the quick result and the explanation are made from these, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import re2

from koordinator.api.document import same
from koordinator.api.string_formats import FORMATS
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.structural_schema.failure import Failure, Fault, go_float
from koordinator.cluster.structural_schema.node import Node

# Patterns as the real server understands them: Go's syntax, matched in a time that grows with the text alone.
#
# A user who may define a resource could stop the server for everyone with a pattern such as ``(a+)+$`` if a search
# backtracked, as that of Python does. RE2 never does, and is what Go's own implementation was made from.


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
        # Its result comes ten times as fast. It may say no when it has run out of memory, but a yes is a yes.
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


_EXACT = 1 << 53


class Keyword(NamedTuple):
    """``holds`` of a value; if not, ``failure`` (path, value)."""

    holds: Callable[[Any], object]
    failure: Callable[[str, Any], Failure]


def of_strings(node: Node) -> list[Keyword]:
    """Of these only the first that does not hold is reported."""
    keywords = []
    if (limit := node.max_length) is not None:
        keywords.append(Keyword(lambda text: len(text) <= limit, _too_long(limit)))
    if (least := node.min_length) is not None:
        keywords.append(Keyword(lambda text: len(text) >= least, _invalid(f"should be at least {least} chars long")))
    if node.pattern:
        try:
            search: Callable[[Any], object] = matcher(node.pattern)
            problem = node.pattern
        except PatternError as error:
            search, problem = bool, f"{node.pattern}, but pattern is invalid: {error}"
        keywords.append(Keyword(search, _invalid(f"should match '{problem}'")))
    return keywords


def of_format(node: Node) -> list[Keyword]:
    if not node.format:
        return []
    return [Keyword(FORMATS[node.format], lambda path, text: type_failure(path, node.format_name, text))]


def of_numbers(node: Node, *, whole: bool) -> list[Keyword]:
    """``whole`` numbers are compared with bounds cut down to whole numbers, as the real server does."""
    keywords = []
    if (factor := node.multiple_of) is not None:
        keywords.append(_multiple(int(factor) if whole else float(factor)))
    if (least := node.minimum) is not None:
        keywords.append(_bounded(int(least) if whole else float(least), "greater", node.exclusive_minimum))
    if (most := node.maximum) is not None:
        keywords.append(_bounded(int(most) if whole else float(most), "less", node.exclusive_maximum))
    return keywords


def of_lists(node: Node) -> list[Keyword]:
    keywords = []
    if (least := node.min_items) is not None:
        keywords.append(Keyword(lambda items: len(items) >= least, _sized(f"should have at least {least} items")))
    if (limit := node.max_items) is not None:
        keywords.append(Keyword(lambda items: len(items) <= limit, _too_many(limit, "items")))
    if node.unique_items:
        keywords.append(Keyword(_unique, lambda path, items: _failure(path, "shouldn't contain duplicates", None)))
    return keywords


def of_objects(node: Node) -> list[Keyword]:
    keywords = []
    if (least := node.min_properties) is not None:
        keywords.append(Keyword(lambda obj: len(obj) >= least, _sized(f"should have at least {least} properties")))
    if (limit := node.max_properties) is not None:
        keywords.append(Keyword(lambda obj: len(obj) <= limit, _too_many(limit, "properties")))
    return keywords


def in_enum(node: Node, value: Any) -> bool:
    return any(_converts(value, allowed) for allowed in node.enum)


def type_failure(path: str, wanted: str, got: str) -> Failure:
    text = f'{path} in body must be of type {wanted}: "{got}"'
    return Failure(Fault.TYPE, path, text, got)


def is_whole(number: float) -> bool:
    """Go's test for a float that is an integer in JSON."""
    return number.is_integer() and abs(number) <= _EXACT


def _converts(value: Any, allowed: Any) -> bool:
    """Go converts one number to the type of the other before it compares them."""
    if allowed is None or value is None:
        return False
    if type(value) in (int, float) and type(allowed) in (int, float):
        return bool(type(allowed)(value) == allowed)
    return same(value, allowed)


def _unique(items: list[Any]) -> bool:
    return not any(same(item, other) for at, item in enumerate(items) for other in items[:at])


def _multiple(factor: float) -> Keyword:
    if factor <= 0:
        return Keyword(lambda number: False, lambda path, number: _not_positive(path, factor))
    sentence = f"should be a multiple of {_number(factor)}"
    if isinstance(factor, int):
        return Keyword(lambda number: number % factor == 0, _invalid(sentence))
    return Keyword(lambda number: is_whole(1 / factor * number if factor < 1 else number / factor), _invalid(sentence))


def _not_positive(path: str, factor: float) -> Failure:
    text = f"factor MultipleOf declared for {path} must be positive: {_number(factor)}"
    return Failure(Fault.INVALID, path, text, factor)


def _number(number: float) -> str:
    return str(number) if isinstance(number, int) else go_float(number)


def _bounded(bound: float, side: str, exclusive: bool) -> Keyword:
    than = "than" if exclusive else "than or equal to"
    failure = _invalid(f"should be {side} {than} {_number(bound)}")
    if side == "less":
        return Keyword((lambda number: number < bound) if exclusive else (lambda number: number <= bound), failure)
    return Keyword((lambda number: number > bound) if exclusive else (lambda number: number >= bound), failure)


def _failure(path: str, sentence: str, value: Any) -> Failure:
    return Failure(Fault.INVALID, path, f"{path} in body {sentence}", value)


def _invalid(sentence: str) -> Callable[[str, Any], Failure]:
    return lambda path, value: _failure(path, sentence, value)


def _sized(sentence: str) -> Callable[[str, Any], Failure]:
    return lambda path, value: _failure(path, sentence, len(value))


def _too_long(limit: int) -> Callable[[str, Any], Failure]:
    def failure(path: str, value: Any) -> Failure:
        return Failure(Fault.TOO_LONG, path, f"{path} in body should be at most {limit} chars long", limit=limit)

    return failure


def _too_many(limit: int, what: str) -> Callable[[str, Any], Failure]:
    def failure(path: str, value: Any) -> Failure:
        text = f"{path} in body should have at most {limit} {what}"
        return Failure(Fault.TOO_MANY, path, text, len(value), limit=limit)

    return failure
