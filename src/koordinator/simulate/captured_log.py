"""Captures what the programs log while they are simulated: it is a part of the result, not of the command's output."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LOGGER: Final = "koordinator"
_KEPT: Final = 50
_MORE: Final = f"more than {_KEPT} different lines: the others are left out"


class _Lines(logging.Handler):
    def __init__(self, lines: dict[str, None]) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._lines) == _KEPT:
            self._lines[_MORE] = None
        elif len(self._lines) < _KEPT:
            text = record.getMessage()
            if record.exc_info is not None and record.exc_info[1] is not None:
                text = f"{text}: {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
            self._lines[f"{record.levelname.lower()}: {text}"] = None


@contextmanager
def captured_log() -> Iterator[dict[str, None]]:
    """Yields a dict whose keys are the warnings and errors of all programs, each once; they are not logged
    elsewhere."""
    lines: dict[str, None] = {}
    logger, handler = logging.getLogger(_LOGGER), _Lines(lines)
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield lines
    finally:
        logger.propagate = before
        logger.removeHandler(handler)
