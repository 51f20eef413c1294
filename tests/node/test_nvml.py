"""NVIDIA's GPUs: which there are, who uses them, and why there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from koordinator.node.errors import Unavailable
from koordinator.node.host import Host
from koordinator.node.nvml import GPU, NVML, open_nvml
from tests.node.machine import FakeMachine
from tests.node.nvml_library import FakeCard, FakeNvmlLibrary

NOW = 1_700_000_000_000_000


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """With the driver."""
    machine = FakeMachine(tmp_path)
    machine.write("/proc/driver/nvidia/version", "NVRM version: 570.86\n")
    return machine.host


def opened(host: Host, *cards: FakeCard) -> NVML:
    nvml = open_nvml(host, lambda: FakeNvmlLibrary(*cards))
    assert isinstance(nvml, NVML)
    return nvml


def test_the_cards(host: Host) -> None:
    nvml = opened(host, FakeCard(), FakeCard())
    assert nvml.gpus[1] == GPU(1, "GPU-1", 1, 1000, "NVIDIA H200", "0000:3b:01.0")
    assert nvml.driver_version == "570.86"


def test_processes_with_their_latest_sample(host: Host) -> None:
    samples = [(7, NOW + 1, 30), (7, NOW, 90), (9, NOW, 5)]
    found = opened(host, FakeCard({7: 100, 8: 200}, samples)).processes()
    assert [(process.pid, process.core_percent, process.memory) for process in found] == [(7, 30, 100)]


def test_memory_that_the_driver_hides_is_0(host: Host) -> None:
    assert [process.memory for process in opened(host, FakeCard({7: None}, [(7, NOW, 1)])).processes()] == [0]


def test_a_card_that_is_lost_costs_its_own_processes_only(host: Host) -> None:
    cards = (FakeCard(is_lost=True), FakeCard({7: 1}, [(7, NOW, 1)]), FakeCard({8: 1}))
    assert [process.gpu.minor for process in opened(host, *cards).processes()] == [1]


def test_without_the_bindings(host: Host) -> None:
    def load() -> Any:
        raise ModuleNotFoundError("No module named 'pynvml'")

    missing = open_nvml(host, load)
    assert isinstance(missing, Unavailable)
    assert "koordinator[nvidia]" in missing.needs


def test_without_the_driver(host: Host) -> None:
    missing = open_nvml(host, lambda: FakeNvmlLibrary(has_driver=False))
    assert isinstance(missing, Unavailable)
    assert missing.reason == "NVML: Driver Not Loaded"


def test_without_the_driver_the_bindings_are_not_imported(tmp_path: Path) -> None:
    """They take 17 MiB."""

    def load() -> Any:
        raise AssertionError("imported")

    missing = open_nvml(Host.below(tmp_path), load)
    assert isinstance(missing, Unavailable)
    assert missing.reason == "no NVIDIA driver is loaded"
