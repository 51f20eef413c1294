"""How a simulated pod ends by the command of its container, where that is plain: ``sleep 5``, ``false``, ``echo hi``.

Nothing is executed. But what people type to try a Job ends on a cluster within seconds, and with a certain exit code,
and so it should here. ``sh -c`` may have several such commands; of any other command nothing is known.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.cluster.nodes.simulated_pod import SimulatedPod

_SUCCEED: Final = frozenset(("true", ":", "echo", "printf", "date", "hostname", "pwd", "env", "ls", "uname", "id"))
_SHELLS: Final = frozenset(("sh", "bash", "ash", "dash"))
_SCRIPT_FLAGS: Final = frozenset(("-c", "-ec", "-ce", "-xc", "-exc"))
_PUNCTUATION: Final = ";&|()<>`\n"
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_SCRIPT: Final = 4096
"""Characters that are looked at."""


@dataclass(frozen=True, slots=True)
class Ending:
    """After how many seconds a pod ends, and with which exit code."""

    seconds: float
    exit_code: int = 0


def ending_by_command(pod: SimulatedPod) -> Ending | None:
    """The ending of a pod all of whose containers have a plain command; None of any other."""
    if not pod.spec.containers:
        return None
    endings = [_of_words((*container.command, *container.args)) for container in pod.spec.containers]
    known = [ending for ending in endings if ending is not None]
    if len(known) < len(endings):
        return None
    return Ending(max(each.seconds for each in known), max(each.exit_code for each in known))


def _of_words(words: Sequence[str]) -> Ending | None:
    name = words[0].rpartition("/")[2] if words else ""
    if name in _SHELLS:
        return _of_script(words[2]) if len(words) == 3 and words[1] in _SCRIPT_FLAGS else None
    return _of_command(name, words[1:])


def _of_command(name: str, arguments: Sequence[str]) -> Ending | None:
    if name in _SUCCEED:
        return Ending(0.0)
    if name == "false":
        return Ending(0.0, 1)
    if name == "sleep" and len(arguments) == 1:
        seconds = _duration(arguments[0])
        return Ending(seconds) if seconds is not None else None
    return None


def _of_script(script: str) -> Ending | None:
    """Commands between ``;``, ``&&`` and line ends; the last one that runs has the exit code of the script."""
    commands = _commands(script)
    if commands is None:
        return None
    seconds, code = 0.0, 0
    for follows_success, words in commands:
        if follows_success and code:
            continue
        if words[0] == "exit" and len(words) <= 2:
            given = words[1] if len(words) == 2 else str(code)
            return Ending(seconds, int(given) % 256) if given.isascii() and given.isdigit() else None
        ending = _of_command(words[0].rpartition("/")[2], words[1:])
        if ending is None:
            return None
        seconds, code = seconds + ending.seconds, ending.exit_code
    return Ending(seconds, code)


def _commands(script: str) -> list[tuple[bool, list[str]]] | None:
    """Each command, with whether it only runs after one that succeeded; None of a script that has more in it."""
    lexer = shlex.shlex(script[:_LONGEST_SCRIPT], posix=True, punctuation_chars=_PUNCTUATION)
    lexer.whitespace = " \t\r"
    lexer.commenters = ""
    try:
        tokens = list(lexer)
    except ValueError:
        return None
    commands: list[tuple[bool, list[str]]] = [(False, [])]
    for part in tokens:
        if part.strip(_PUNCTUATION) or not part:
            commands[-1][1].append(part)
        elif part == "&&":
            commands.append((True, []))
        elif part.strip(";\n"):
            return None
        else:
            commands.append((False, []))
    return [command for command in commands if command[1]]


def _duration(text: str) -> float | None:
    number, unit = (text[:-1], _SECONDS[text[-1]]) if text[-1:] in _SECONDS else (text, 1.0)
    whole, _, fraction = number.partition(".")
    digits = whole + fraction
    return float(number) * unit if digits.isascii() and digits.isdigit() and len(digits) < 10 else None
