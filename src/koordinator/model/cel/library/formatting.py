"""``'%s has %d'.format([…])`` (cel-go, ``ext/formatting.go``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from koordinator.model.cel.budget import Meter
from koordinator.model.cel.errors import EvaluationError
from koordinator.model.cel.functions import Overload, overloads
from koordinator.model.cel.library.conversions import duration_text, text, timestamp_text
from koordinator.model.cel.library.texts import quoted
from koordinator.model.cel.values import Duration, Timestamp, TypeValue, UInt, type_name

_CLAUSE: Final = re.compile(r"%(?:%|(?:\.(\d{1,3}))?(.)|$)", re.DOTALL)
_PRECISION: Final = 6
_FLOATS: Final = ("NaN", "Infinity", "-Infinity")


def _format(meter: Meter, template: str, args: list[Any]) -> str:
    used = 0

    def clause(found: re.Match[str]) -> str:
        nonlocal used
        if found[0] == "%%":
            return "%"
        precision, verb = found.groups()
        if not verb:
            raise EvaluationError("unexpected end of string")
        if verb not in _VERBS:
            raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')
        if used >= len(args):
            raise EvaluationError(f"index {used} out of range")
        used += 1
        said = _VERBS[verb](meter, args[used - 1], _PRECISION if precision is None else int(precision))
        meter.labour(len(said) >> 4)
        return said

    result = _CLAUSE.sub(clause, template)
    if used < len(args):
        raise EvaluationError(f"too many arguments supplied to string.format (expected {used}, got {len(args)})")
    return result


def _string(meter: Meter, value: Any, precision: int) -> str:
    meter.labour(1)
    if value is None:
        return "null"
    if isinstance(value, TypeValue):
        return value.name
    if isinstance(value, list):
        return f"[{', '.join(_inner(meter, item) for item in value)}]"
    if isinstance(value, dict):
        entries = sorted((_inner(meter, key), _inner(meter, item)) for key, item in value.items())
        return "{" + ", ".join(f"{key}:{item}" for key, item in entries) + "}"
    try:
        return text(value)
    except EvaluationError:
        allowed = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        raise _wrong("string", allowed, value) from None


def _inner(meter: Meter, value: Any) -> str:
    """Of what a list or a map holds: texts are quoted."""
    if isinstance(value, str):
        meter.labour(len(value) >> 4)
        return quoted(value)
    if isinstance(value, bytes):
        return "b" + quoted(value.decode(errors="replace"))
    if isinstance(value, float):
        return f"{value:.6f}" if value - value == 0 else quoted(text(value))
    if isinstance(value, Timestamp):
        return f'timestamp("{timestamp_text(value)}")'
    if isinstance(value, Duration):
        return f'duration("{duration_text(value)}")'
    if isinstance(value, TypeValue):
        return f"type({value.name})"
    return _string(meter, value, _PRECISION)


def _is_number(value: Any) -> bool:
    return type(value) in (int, UInt)


def _decimal(meter: Meter, value: Any, precision: int) -> str:
    if not _is_number(value):
        raise _wrong("decimal", "integers", value)
    return str(int(value))


def _float(value: Any, clause: str) -> float:
    if isinstance(value, float):
        return value
    if isinstance(value, str) and value in _FLOATS:
        return float(value)
    raise _wrong(clause, "doubles", value)


def _fixed(meter: Meter, value: Any, precision: int) -> str:
    number = _float(value, "fixed-point")
    return f"{number:,.{precision}f}" if number - number == 0 else _special(number)


def _scientific(meter: Meter, value: Any, precision: int) -> str:
    number = _float(value, "scientific")
    if number - number != 0:
        return _special(number)
    digits, _, exponent = f"{number:.{precision}e}".partition("e")
    raised = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] if digit.isdigit() else "⁻" for digit in f"{abs(int(exponent)):02d}")
    return f"{digits}×10{'⁻' if int(exponent) < 0 else ''}{raised}"


def _special(number: float) -> str:
    return "NaN" if number != number else "∞" if number > 0 else "-∞"


def _binary(meter: Meter, value: Any, precision: int) -> str:
    if isinstance(value, bool) or _is_number(value):
        return f"{int(value):b}"
    raise _wrong("binary", "integers and bools", value)


def _octal(meter: Meter, value: Any, precision: int) -> str:
    if not _is_number(value):
        raise _wrong("octal", "integers", value)
    return f"{int(value):o}"


def _hexadecimal(meter: Meter, value: Any, precision: int) -> str:
    if isinstance(value, (str, bytes)):
        return (value.encode() if isinstance(value, str) else value).hex()
    if not _is_number(value):
        raise _wrong("hex", "integers, byte buffers, and strings", value)
    return f"{int(value):x}"


def _wrong(clause: str, allowed: str, value: Any) -> EvaluationError:
    why = f"{clause} clause can only be used on {allowed}, was given {type_name(value)}"
    return EvaluationError(f"error during formatting: {why}")


_VERBS: Final[Mapping[str, Callable[[Meter, Any, int], str]]] = {
    "s": _string,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "o": _octal,
    "x": _hexadecimal,
    "X": lambda meter, value, precision: _hexadecimal(meter, value, precision).upper(),
}
FORMATTING: Final[list[Overload]] = overloads(
    (("string_format", "string->format(list(dyn)): string", _format),), metered=True
)
