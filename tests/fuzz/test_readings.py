"""Broken configurations, files and messages: each comes to an error of ours that says what is wrong, or is read as far
as it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.fuzz.configuration_readings import configurations
from tests.fuzz.node_readings import kernel_files, messages, node_files
from tests.fuzz.readings import Reading, survive
from tests.node.machine import FakeMachine
from tests.node.test_odd_rows import healthy_machine

_SETS: Final[dict[str, Callable[[Path], Iterator[tuple[str, Reading]]]]] = {
    "configurations": configurations,
    "files of the node": node_files,
    "messages": messages,
}


@pytest.mark.parametrize("of", _SETS)
def test_what_is_broken_is_refused_or_read(of: str, seeds: range, tmp_path: Path) -> None:
    refused = {name: survive(name, reading, seeds) for name, reading in _SETS[of](tmp_path)}
    assert all(count < len(seeds) for count in refused.values()), "what is always refused shows nothing"


def test_a_broken_kernel_file_is_refused_or_read(seeds: range, tmp_path: Path) -> None:
    for name, reading in kernel_files(healthy_machine(FakeMachine(tmp_path))):
        survive(name, reading, seeds)
