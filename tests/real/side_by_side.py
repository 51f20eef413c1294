"""Ours and the original play the same at the same time, each on a control plane of its own.

They mostly wait, so a long table of scenarios is cut into parts, which workers play side by side. Each scenario is a
test of its own; the first one of a part that is run plays all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

import pytest

from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms

Who = Literal["ours", "original"]
BOTH: Final[tuple[Who, Who]] = ("ours", "original")

T = TypeVar("T")


class Parts(Generic[T]):
    """What each part of a table has come to; ``play`` is called once for a part, also if it fails."""

    def __init__(self, play: Callable[[str], T]) -> None:
        self._play = play
        self._played: dict[str, T | BaseException] = {}

    def __getitem__(self, part: str) -> T:
        if part not in self._played:
            try:
                self._played[part] = self._play(part)
            except Exception as error:
                self._played[part] = error
        found = self._played[part]
        if isinstance(found, BaseException):
            raise found
        return found


def cut(names: Sequence[T], count: int, first: int = 0) -> dict[str, Sequence[T]]:
    """Into parts of the same size, named by their numbers from ``first`` on; neighbours, which may be alike, are in
    different ones."""
    return {f"part {first + index}": names[index::count] for index in range(count)}


def cases(parts: Mapping[str, Sequence[Any]], *, marks: Mapping[str, pytest.MarkDecorator] | None = None) -> Any:
    """Parameters ``part`` and ``name`` for ``pytest.mark.parametrize``; ``marks`` by part."""
    chosen = marks or {}
    return [
        pytest.param(part, name, id=f"{part}: {name}", marks=[chosen[part]] if part in chosen else [])
        for part, names in parts.items()
        for name in names
    ]


def in_parts(scenarios: Sequence[Any], count: int) -> Any:
    """One parameter for ``pytest.mark.parametrize``: scenarios that need not be played in one process."""
    return [pytest.param(each, id=f"{part}: {each}") for part, found in cut(scenarios, count).items() for each in found]


@contextmanager
def two_planes(programs: RealPrograms, folder: Path) -> Iterator[dict[Who, ControlPlane]]:
    """A control plane for each, in folders of their names."""
    planes = {who: ControlPlane(programs.kubernetes, folder / who) for who in BOTH}
    try:
        for plane in planes.values():
            plane.begin()
        for plane in planes.values():
            plane.wait_ready()
        yield planes
    finally:
        for plane in planes.values():
            plane.stop()


async def both(work: Callable[[Who], Awaitable[T]]) -> tuple[T, T]:
    """What ``work`` returns for ours and for the original."""
    ours, theirs = await asyncio.gather(*map(work, BOTH))
    return ours, theirs
