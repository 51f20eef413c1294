"""Counts the calls that our code makes and receives: what a piece of work costs, the same in every run.

Counted are the functions of ``koordinator`` that are called, a coroutine each time that it goes on, and what these
functions call directly of Python's, of libraries' and of C. What libraries do inside is not counted, so that their
versions do not matter, nor are comprehensions, which some versions of Python make functions of. A loop that calls
nothing costs nothing here.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import BuiltinFunctionType, CodeType, FrameType
from typing import Any, Final

_OURS: Final = "koordinator."
_NOT_MEASURED: Final = (
    "koordinator.cluster.",
    "koordinator.simulate.",
    "koordinator.base.clock",
    "tests.",
    "benchmarks.",
)
"""The API server, the clock and the tests themselves, which run in the same process, with all that they call."""
_COMPREHENSIONS: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})


class CallCounter:
    """``counting`` around a block counts it; ``calls`` is by ``module:function``."""

    def __init__(self, not_measured: Sequence[str] = _NOT_MEASURED) -> None:
        self._not_measured = tuple(not_measured)
        self._functions: Counter[CodeType] = Counter()
        self._builtins: Counter[str] = Counter()
        self._names: dict[CodeType, str] = {}
        """Of every function that was met: where it is, empty for one that is not ours."""
        self._modules: dict[CodeType, str] = {}
        self._within: FrameType | None = None
        """The outermost function in progress that is not measured, with all that it calls."""

    @contextmanager
    def counting(self) -> Iterator[None]:
        """No garbage is collected meanwhile: when that happens depends on what the process did before."""
        was_enabled = gc.isenabled()
        gc.disable()
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._within = None
            if was_enabled:
                gc.enable()

    @property
    def calls(self) -> Counter[str]:
        found = Counter(self._builtins)
        for code, count in self._functions.items():
            found[f"{self._modules[code]}:{code.co_qualname}"] += count
        return found

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._within is not None:
            if event == "return" and frame is self._within:
                self._within = None
            return
        if event == "call":
            self._called(frame)
        elif event == "c_call" and self._is_ours(frame):
            self._builtins[_builtin_name(argument)] += 1

    def _called(self, frame: FrameType) -> None:
        code = frame.f_code
        module = self._modules.get(code)
        if module is None:
            module = self._modules[code] = str(frame.f_globals.get("__name__", ""))
        caller = frame.f_back
        by_us = caller is not None and self._is_ours(caller)
        if module.startswith(self._not_measured):
            self._within = frame
        if (by_us or self._is_ours(frame)) and code.co_name not in _COMPREHENSIONS:
            self._functions[code] += 1

    def _is_ours(self, frame: FrameType) -> bool:
        code = frame.f_code
        module = self._modules.get(code)
        if module is None:
            module = self._modules[code] = str(frame.f_globals.get("__name__", ""))
        return module.startswith(_OURS) and not module.startswith(self._not_measured)


def _builtin_name(function: BuiltinFunctionType) -> str:
    module = getattr(function, "__module__", None) or "builtins"
    return f"{module}:{getattr(function, '__qualname__', type(function).__name__)}"
