"""Log records on one line of stderr: klog's text or JSON, ``-v`` levels, fields as ``key=value``, no secrets.

``logger.info("bound pod", extra=fields(pod="default/web", node="n1"))``. ``-v`` levels are below INFO: write
``logger.log(verbosity(5), …)``; DEBUG is ``-v=4``.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import datetime
from typing import Any, Literal, TextIO

LogFormat = Literal["text", "json"]

_LETTERS = {logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}
_HIDDEN = "[redacted]"
_SECRET_NAME = re.compile(r"token|password|passwd|secret|authorization|private.?key|credential", re.IGNORECASE)
_SECRET_TEXT = re.compile(
    r"(?P<bearer>\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{8,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.DOTALL,
)
_PLAIN = re.compile(r"[\w./:@%+,\[\]{}-]+")


def verbosity(level: int) -> int:
    """Return the logging level of klog's ``V(level)``; its records are logged with ``-v`` of at least ``level``."""
    return max(1, logging.INFO - level if level < 4 else logging.DEBUG + 4 - level)


def fields(**values: object) -> dict[str, Any]:
    """Return structured fields for the ``extra`` argument of a logging call."""
    return {"fields": values}


def redact(text: str) -> str:
    """Return the text without bearer tokens, JSON web tokens and private keys."""
    return _SECRET_TEXT.sub(lambda match: (match["bearer"] or "") + _HIDDEN, text)


def configure(level: int = 0, format_: LogFormat = "text", stream: TextIO | None = None) -> None:
    """Write all log records of this process at ``-v=level`` or above to ``stream`` (stderr by default)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format_ == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(verbosity(level))
    # These libraries' INFO and DEBUG records are of use only to their authors.
    for library in ("aiohttp", "asyncio", "grpc"):
        logging.getLogger(library).setLevel(logging.WARNING if level < 8 else logging.DEBUG)


class TextFormatter(logging.Formatter):
    """``I1121 05:07:25.123456   4242 binder.py:17] bound pod pod=default/web``."""

    def format(self, record: logging.LogRecord) -> str:
        letter = "I" if record.levelno < logging.WARNING else _LETTERS.get(record.levelno, "E")
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%m%d %H:%M:%S.%f")
        head = f"{letter}{moment} {record.process or 0:>7} {record.filename}:{record.lineno}]"
        parts = [head, _one_line(redact(record.getMessage()))]
        parts += [f"{key}={_quoted(value)}" for key, value in _all_fields(self, record).items()]
        return " ".join(parts)


class JsonFormatter(logging.Formatter):
    """component-base's JSON: ``ts`` in milliseconds, ``caller``, ``msg``, ``v`` or ``level``, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "ts": round(record.created * 1000, 3),
            "level": "info" if record.levelno < logging.WARNING else record.levelname.lower(),
            "caller": f"{record.filename}:{record.lineno}",
            "logger": record.name,
            "msg": redact(record.getMessage()),
        }
        if record.levelno < logging.WARNING:
            document["v"] = _level_of(record.levelno)
        for key, value in _all_fields(self, record).items():
            document.setdefault(key, value)
        return json.dumps(document, ensure_ascii=False, default=str)


def _level_of(levelno: int) -> int:
    return max(0, logging.INFO - levelno) if levelno > logging.DEBUG else logging.DEBUG + 4 - levelno


def _all_fields(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, Any]:
    given: dict[str, object] = getattr(record, "fields", {})
    shown: dict[str, Any] = {key: _shown(key, value) for key, value in given.items()}
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        shown["err"] = redact(f"{type(error).__name__}: {error}")
        shown["stacktrace"] = redact(formatter.formatException(record.exc_info))
    return shown


def _shown(key: str, value: object) -> object:
    if _SECRET_NAME.search(key):
        return _HIDDEN
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact(str(value))


def _quoted(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _one_line(text: str) -> str:
    return (
        text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") if "\n" in text or "\r" in text else text
    )
