"""NVIDIA's GPUs: which there are, who uses them, and why there are none."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from koordinator.node.errors import Unavailable
from koordinator.node.host import Host
from koordinator.node.nvml import GPU, NVML, open_nvml, probe
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
    """One that only holds memory has no sample."""
    samples = [(7, NOW + 1, 30), (7, NOW, 90), (9, NOW, 5)]
    (found,) = opened(host, FakeCard({7: 100, 8: 200}, samples)).processes().values()
    assert [(process.pid, process.core_percent, process.memory) for process in found] == [(7, 30, 100), (8, 0, 200)]


def test_memory_that_the_driver_hides_is_0(host: Host) -> None:
    (found,) = opened(host, FakeCard({7: None}, [(7, NOW, 1)])).processes().values()
    assert [process.memory for process in found] == [0]


def test_a_card_that_is_lost_costs_its_own_processes_only(host: Host) -> None:
    """What it does is unknown, and not nothing."""
    cards = (FakeCard(is_lost=True), FakeCard({7: 1}, [(7, NOW, 1)]), FakeCard())
    found = opened(host, *cards).processes()
    assert {gpu.minor: len(processes) for gpu, processes in found.items()} == {1: 1, 2: 0}


def test_a_card_that_responds_again_is_warned_of_again(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    card = FakeCard(is_lost=True)
    nvml = opened(host, card)
    with caplog.at_level(logging.WARNING):
        for card.is_lost in (True, True, False, True):
            nvml.processes()
    assert caplog.text.count("the usage of GPU GPU-0 is unknown: NVML: GPU is lost") == 2


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
    """They take memory."""

    def load() -> Any:
        raise AssertionError("imported")

    missing = open_nvml(Host.below(tmp_path), load)
    assert isinstance(missing, Unavailable)
    assert missing.reason == "no NVIDIA driver is loaded"


def test_what_koordlet_would_miss_is_seen_without_opening_the_library(host: Host, tmp_path: Path) -> None:
    def fail(name: str) -> Any:
        raise OSError(name)

    def reason(missing: Unavailable | None) -> str | None:
        return None if missing is None else missing.reason

    assert reason(probe(Host.below(tmp_path / "other"))) == "no NVIDIA driver is loaded"
    assert reason(probe(host, lambda name: None)) == "nvidia-ml-py is not installed"
    assert reason(probe(host, lambda name: name, fail)) == "libnvidia-ml.so.1 is not installed"
    assert probe(host, lambda name: name, lambda name: name) is None


_CRITICAL = 8


def watched(host: Host, *cards: FakeCard) -> tuple[NVML, FakeNvmlLibrary]:
    """The cards, whose events are listened to from now on."""
    library = FakeNvmlLibrary(*cards)
    nvml = open_nvml(host, lambda: library)
    assert isinstance(nvml, NVML)
    nvml.failures()
    return nvml, library


def failures(nvml: NVML) -> dict[int, tuple[str, str]]:
    """By the number of the card."""
    return {gpu.minor: (failure.code, failure.message) for gpu, failure in nvml.failures().items()}


def test_a_critical_error_makes_its_card_unhealthy_for_good(host: Host) -> None:
    nvml, library = watched(host, FakeCard(), FakeCard())
    assert failures(nvml) == {}
    library.events = [(1, _CRITICAL, 48)]
    wanted = {1: ("Xid48", "Xid error detected on device, error code: 48")}
    assert failures(nvml) == wanted
    assert failures(nvml) == wanted


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])
def test_an_error_that_a_program_has_made_leaves_its_card_healthy(host: Host, xid: int) -> None:
    nvml, library = watched(host, FakeCard())
    library.events = [(0, _CRITICAL, xid)]
    assert failures(nvml) == {}


def test_events_of_other_kinds_do_not_count(host: Host) -> None:
    nvml, library = watched(host, FakeCard())
    library.events = [(0, 16, 48)]
    assert failures(nvml) == {}


def test_a_card_that_falls_off_the_bus_is_unhealthy_though_nobody_can_ask_which_it_was(host: Host) -> None:
    cards = (FakeCard(), FakeCard())
    nvml, library = watched(host, *cards)
    cards[0].is_off_the_bus = True
    library.events = [(0, _CRITICAL, 79)]
    assert failures(nvml) == {0: ("Xid79", "failed to get device, error: GPU is lost")}


def test_a_card_that_reports_no_errors_is_unhealthy_as_the_original_says(host: Host) -> None:
    nvml, _ = watched(host, FakeCard(reports_errors=False), FakeCard())
    assert failures(nvml) == {0: ("DeviceHealthCheckNotSupported", "device does not support health checking")}


def test_a_driver_that_never_stops_telling_does_not_stop_the_agent(host: Host) -> None:
    nvml, library = watched(host, FakeCard())
    library.events = [(0, _CRITICAL, 48)] * 1000
    nvml.failures()
    assert library.events


def test_a_library_that_is_closed_has_no_event_set_left(host: Host) -> None:
    nvml, library = watched(host, FakeCard())
    assert library.event_sets == 1
    nvml.close()
    assert library.event_sets == 0


def test_a_library_without_event_sets_is_one_warning(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(library: Any) -> str:
        raise library.NVMLError_NotSupported("Not Supported")

    monkeypatch.setattr(FakeNvmlLibrary, "nvmlEventSetCreate", refuse)
    nvml, _ = watched(host, FakeCard())
    assert failures(nvml) == {}
    assert [record.getMessage() for record in caplog.records] == [
        "critical errors of GPUs are not noticed: Not Supported"
    ]
