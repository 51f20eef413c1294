"""The debug flags, set on the command line and changed over HTTP while the program runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from koordinator.base.debug_flags import number, set_verbosity

_INT: Final = range(-(2**63), 2**63)
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


@dataclass(slots=True)
class DebugSettings:
    """``scores``: how many nodes of each decision to log; ``blocking``: write diagnoses at once."""

    scores: int = 0
    filters: bool = False
    diagnosis: bool = False
    blocking: bool = False

    @property
    def active(self) -> bool:
        """Whether any debug output is enabled."""
        return self.scores > 0 or self.filters or self.diagnosis

    @property
    def setters(self) -> Mapping[str, Callable[[str], str]]:
        """By the flag's short name; each returns the original's response, or raises ValueError with the original's
        message."""
        return MappingProxyType(
            {
                "v": set_verbosity,
                "s": self._set_scores,
                "f": self._set_filters,
                "d": self._set_diagnosis,
                "db": self._set_blocking,
            }
        )

    def _set_scores(self, text: str) -> str:
        self.scores = number(text, _INT, f"failed set debugTopNScores {text}: strconv.Atoi")
        return f"successfully set debugTopNScores to {text}"

    def _set_filters(self, text: str) -> str:
        self.filters = _boolean(text)
        return _switched(text)

    def _set_diagnosis(self, text: str) -> str:
        self.diagnosis = _boolean(text)
        return _switched(text)

    def _set_blocking(self, text: str) -> str:
        self.blocking = _boolean(text)
        return _switched(text)


def _boolean(text: str) -> bool:
    if text not in _TRUE | _FALSE:
        raise ValueError(f'failed set debugFilterFailure {text}: strconv.ParseBool: parsing "{text}": invalid syntax')
    return text in _TRUE


def _switched(text: str) -> str:
    # The original's text for all three flags.
    return f"successfully set debugFilterFailure to {text}"
