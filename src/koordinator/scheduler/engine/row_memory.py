"""What was found out about nodes for one class of pods, kept as long as nothing changes on them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final

from koordinator.scheduler.engine.columns import NodeColumns

_QUESTIONS: Final = 16
"""Like pods ask few different ones at a time, but each new version of what a question is about makes a new one."""


class RowMemory:
    """Question -> row -> answer. Answers about a row are forgotten when it changes."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, dict[int, Any]] = OrderedDict()
        self._version = -1

    def answers(self, question: Hashable, columns: NodeColumns) -> dict[int, Any]:
        """What is known at the present version; to be added to. Valid until something changes."""
        self._forget_changed(columns)
        known = self._answers.setdefault(question, {})
        self._answers.move_to_end(question)
        if len(self._answers) > _QUESTIONS:
            self._answers.popitem(last=False)
        return known

    def _forget_changed(self, columns: NodeColumns) -> None:
        if self._version == columns.version:
            return
        changed = columns.changes_since(self._version, columns.size)
        if changed is None:
            self._answers.clear()
        else:
            for known in self._answers.values():
                for row in changed:
                    known.pop(row, None)
        self._version = columns.version
