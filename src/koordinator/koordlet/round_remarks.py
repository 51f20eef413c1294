"""What a loop has to say of its rounds: each text once while it lasts, and again when it comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from logging import Logger


class RoundRemarks:
    """Of one loop. Nothing is said outside a round."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._last: frozenset[str] = frozenset()
        self._said: dict[str, str] = {}
        """What is said by what it is about."""

    @contextmanager
    def round(self) -> Iterator[None]:
        """One round, which may end with an error: what it said until then counts."""
        self._said = {}
        try:
            yield
        finally:
            self._last = frozenset(self._said)

    def say(self, text: str, about: str | None = None) -> None:
        """A warning, unless the last round had it, or this one has it already.

        Texts ``about`` one thing are one remark, where they change with every round."""
        key = text if about is None else about
        if key not in self._last and key not in self._said:
            self._logger.warning("%s", text)
        self._said[key] = text

    def __str__(self) -> str:
        """What this round has said."""
        return "; ".join(sorted(self._said.values()))
