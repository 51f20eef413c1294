"""The NVML module through NVIDIA's own bindings, over a C library that a test makes up.

The names, addresses, sizes and driver versions in ``RECORDED`` are what nvidia-smi printed on real cards, as others
have published it (most in the test data of github.com/influxdata/telegraf). UUIDs are made up, as is everything else.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from koordinator.koordlet.report.devices.description import Inventory, describe_devices
from koordinator.node.errors import Unavailable
from koordinator.node.host import Host
from koordinator.node.nvml import NVML, open_nvml
from tests.node.machine import FakeMachine
from tests.node.nvml_c_library import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    HIDDEN,
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    UNKNOWN,
    XID_CRITICAL_ERROR,
    Card,
    CLibrary,
    bindings_over,
)
from tests.node.nvml_library import FakeNvmlLibrary

NOW = 1_700_000_000_000_000
A100 = Card("GPU-aaaaaaaa-6d19-9063-b049-1e69664bb298", 1, "NVIDIA A100-SXM4-80GB", "00000000:01:00.0", 81920 << 20)
RTX_PRO = Card(
    "GPU-bbbbbbbb-aaaa-bbbb-cccc-0123456789ab",
    0,
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    "00000000:61:00.0",
    97887 << 20,
)
T4 = Card("GPU-cccccccc-91dd-3774-a5cb-99096249601a", 0, "Tesla T4", "00000000:00:1E.0", 15360 << 20)
H200 = Card("GPU-dddddddd-0000-1111-2222-333333333333", 0, "NVIDIA H200", "00000001:00:00.0", 143771 << 20)
GB10 = Card(
    "GPU-eeeeeeee-0000-1111-2222-333333333333", 0, "NVIDIA GB10", "0000000F:01:00.0", memory_result=NOT_SUPPORTED
)
"""A DGX Spark: the card has no memory of its own (github.com/kubernetes-sigs/dra-driver-nvidia-gpu, issue 1073)."""
RECORDED = [
    pytest.param(A100, "535.54.03", "A100-SXM4-80GB", "0000:01:00.0", "80Gi", id="A100 with MIG"),
    pytest.param(
        RTX_PRO,
        "590.44.01",
        "RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition",
        "0000:61:00.0",
        "97887Mi",
        id="RTX PRO 6000",
    ),
    pytest.param(T4, "515.105.01", "Tesla-T4", "0000:00:1e.0", "15Gi", id="T4 in a virtual machine"),
    pytest.param(H200, "550.127.08", "H200", "0001:00:00.0", "143771Mi", id="H200 in a domain of its own"),
]


class Driver:
    """A machine with the driver, and the bindings on it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        machine = FakeMachine(root)
        machine.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05\n")
        self.host: Host = machine.host
        self._monkeypatch = monkeypatch

    def bindings(self, library: CLibrary) -> Any:
        return bindings_over(library, importlib.import_module("pynvml"), self._monkeypatch.setattr)

    def open(self, *cards: Card, **more: Any) -> tuple[NVML, CLibrary]:
        library = CLibrary([replace(card) for card in cards], **more)
        nvml = open_nvml(self.host, lambda: self.bindings(library))
        assert isinstance(nvml, NVML)
        return nvml, library


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(tmp_path, monkeypatch)


@pytest.mark.parametrize(("card", "version", "model", "address", "memory"), RECORDED)
def test_a_card_as_the_device_object_has_it(
    driver: Driver, card: Card, version: str, model: str, address: str, memory: str
) -> None:
    nvml, _ = driver.open(card, driver=version)
    (gpu,) = nvml.gpus
    assert (gpu.uuid, gpu.minor, gpu.bus_id) == (card.uuid, card.minor, address)
    inventory = Inventory(gpus=nvml.gpus, driver_version=nvml.driver_version)
    report = describe_devices(inventory, datetime(2026, 3, 1, tzinfo=UTC))
    assert str(report.devices[0].resources["koordinator.sh/gpu-memory"]) == memory
    assert report.labels["node.koordinator.sh/gpu-model"] == model
    assert report.labels["node.koordinator.sh/gpu-driver-version"] == version


@pytest.mark.parametrize("absent", [(), ("nvmlDeviceGetComputeRunningProcesses_v3",)], ids=["R510", "R450"])
def test_processes(driver: Driver, absent: tuple[str, ...]) -> None:
    """One computes, one only holds memory, and the driver hides the memory of one."""
    running = {7: 1 << 30, 8: 2 << 30, 9: HIDDEN}
    nvml, _ = driver.open(replace(A100, running=running, samples=[(7, NOW, 90), (7, NOW + 1, 30)]), absent=absent)
    (processes,) = nvml.processes().values()
    found = [(process.pid, process.core_percent, process.memory) for process in processes]
    assert found == [(7, 30, 1 << 30), (8, 0, 2 << 30), (9, 0, 0)]


def test_a_sample_of_more_than_100_percent_says_nothing(driver: Driver) -> None:
    samples = [(7, NOW, 40), (7, NOW + 1, 4_294_967_295)]
    nvml, _ = driver.open(replace(A100, running={7: 1 << 30}, samples=samples))
    assert [process.core_percent for process in nvml.processes()[nvml.gpus[0]]] == [40]


def test_a_card_that_nobody_uses(driver: Driver) -> None:
    nvml, _ = driver.open(A100)
    assert list(nvml.processes().values()) == [()]


def test_a_driver_without_the_call_costs_the_usage_alone(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    absent = [f"nvmlDeviceGetComputeRunningProcesses_v{version}" for version in (2, 3)]
    nvml, _ = driver.open(A100, absent=absent)
    with caplog.at_level(logging.WARNING):
        assert nvml.processes() == {}
    assert f"the usage of GPU {A100.uuid} is unknown: NVML: Function Not Found" in caplog.text


def test_with_mig_the_usage_is_unknown(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """NVML's manual: querying the utilisation of processes is not supported on GPUs with MIG enabled."""
    nvml, _ = driver.open(replace(A100, running={7: 1 << 30}, has_mig=True), replace(T4, running={8: 1 << 20}))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert [gpu.uuid for gpu in nvml.processes()] == [T4.uuid]
    assert caplog.text.count(f"the usage of GPU {A100.uuid} is unknown: NVML: Not Supported") == 1


def test_a_card_that_is_lost_before_the_start(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        nvml, _ = driver.open(replace(A100, is_lost=True), T4)
    assert [gpu.uuid for gpu in nvml.gpus] == [T4.uuid]
    assert "GPU 0 is left out until koordlet starts anew: NVML: Unknown Error" in caplog.text


def failures(nvml: NVML) -> dict[str, tuple[str, str]]:
    """By UUID."""
    return {gpu.uuid: (failure.code, failure.message) for gpu, failure in nvml.failures().items()}


@pytest.mark.parametrize("result", [NOT_SUPPORTED, UNKNOWN, GPU_IS_LOST])
def test_a_card_whose_memory_cannot_be_read_costs_the_number_alone(driver: Driver, result: int) -> None:
    nvml, _ = driver.open(replace(GB10, memory_result=result), H200)
    assert [(gpu.uuid, gpu.memory) for gpu in nvml.gpus] == [(GB10.uuid, None), (H200.uuid, H200.memory)]


def test_a_card_with_the_memory_of_the_machine_is_listed_as_healthy_and_says_why_it_has_no_bytes(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        nvml, _ = driver.open(GB10)
    inventory = Inventory(gpus=nvml.gpus, failures=nvml.failures(), driver_version=nvml.driver_version)
    report = describe_devices(inventory, datetime(2026, 3, 1, tzinfo=UTC))
    (device,) = report.devices
    assert device.health
    assert {name: str(amount) for name, amount in device.resources.items()} == {
        "koordinator.sh/gpu-core": "100",
        "koordinator.sh/gpu-memory-ratio": "100",
    }
    (condition,) = device.conditions
    assert (condition.type, condition.status, condition.reason) == ("MemoryReported", "False", "NotReported")
    assert condition.message.startswith("the driver does not report the memory of this GPU (NVML: Not Supported)")
    assert report.labels["node.koordinator.sh/gpu-model"] == "GB10"
    assert caplog.text.count(f"the memory of GPU {GB10.uuid} is unknown: NVML: Not Supported") == 1


def test_a_driver_that_reports_no_memory_at_all_does_not_report_it(driver: Driver) -> None:
    """The first drivers of GB10 did so (github.com/Syllo/nvtop, pull request 411). No card has none."""
    nvml, _ = driver.open(replace(GB10, memory=0, memory_result=0))
    assert nvml.gpus[0].memory is None


def test_a_card_without_a_name_and_an_address_is_listed_with_the_rest(driver: Driver) -> None:
    nvml, _ = driver.open(replace(T4, identity_result=NOT_SUPPORTED))
    (gpu,) = nvml.gpus
    assert (gpu.uuid, gpu.minor, gpu.memory, gpu.model, gpu.bus_id) == (T4.uuid, 0, T4.memory, "", "")
    assert failures(nvml) == {}


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (GPU_IS_LOST, "GPU is lost"),
        (UNKNOWN, "Unknown Error"),
        (NOT_FOUND, "Not Found"),
        (INVALID_ARGUMENT, "Invalid Argument"),
        (RESET_REQUIRED, "GPU requires restart"),
    ],
)
def test_a_card_that_is_lost_without_an_event_is_unhealthy_for_as_long(driver: Driver, result: int, said: str) -> None:
    nvml, library = driver.open(A100, T4)
    assert failures(nvml) == {}
    library.cards[0].result = result
    assert failures(nvml) == {A100.uuid: ("GPULost", f"failed to query device, error: {said}")}
    library.cards[0].result = 0
    assert failures(nvml) == {}


def test_a_query_that_a_card_does_not_support_says_nothing_of_its_health(driver: Driver) -> None:
    nvml, library = driver.open(A100)
    library.cards[0].result = NOT_SUPPORTED
    assert failures(nvml) == {}


def test_a_card_that_the_driver_no_longer_lists_is_unhealthy(driver: Driver) -> None:
    nvml, library = driver.open(A100, T4)
    library.cards[0].is_listed = False
    assert failures(nvml) == {A100.uuid: ("GPUNotListed", "the driver no longer lists this device")}


def test_a_card_that_is_lost_does_not_make_the_others_unhealthy(driver: Driver) -> None:
    """nvml.h: a call for a handle may say that a GPU is lost when it is another one."""
    nvml, library = driver.open(A100, T4)
    nvml.failures()
    library.cards[0].is_lost = library.cards[0].loses_handles = True
    library.events = [(0, XID_CRITICAL_ERROR, 79)]
    assert set(failures(nvml)) == {A100.uuid}


def test_a_card_of_which_the_driver_gives_no_handle_any_more_is_unhealthy(driver: Driver) -> None:
    nvml, library = driver.open(A100, T4)
    library.cards[1].is_lost = True
    assert failures(nvml) == {T4.uuid: ("GPULost", "failed to query device, error: GPU is lost")}


def test_a_lost_card_is_logged_once_and_when_it_responds_again(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    nvml, library = driver.open(A100)
    with caplog.at_level(logging.INFO):
        for result in (GPU_IS_LOST, GPU_IS_LOST, 0):
            library.cards[0].result = result
            nvml.failures()
    assert caplog.text.count(f"GPU {A100.uuid} is not healthy: GPULost") == 1
    assert caplog.text.count(f"GPU {A100.uuid} responds again") == 1


def test_an_address_in_a_large_domain(driver: Driver) -> None:
    """Behind Intel's VMD, domains have five digits."""
    nvml, _ = driver.open(replace(A100, bus_id="00010000:E1:00.0"))
    assert nvml.gpus[0].bus_id == "10000:e1:00.0"


def test_a_critical_error(driver: Driver) -> None:
    nvml, library = driver.open(A100, T4)
    assert nvml.failures() == {}
    library.events = [(0, XID_CRITICAL_ERROR, 31), (1, XID_CRITICAL_ERROR, 48)]
    assert {gpu.uuid: failure.code for gpu, failure in nvml.failures().items()} == {T4.uuid: "Xid48"}


def test_a_card_that_falls_off_the_bus(driver: Driver) -> None:
    nvml, library = driver.open(A100, T4)
    nvml.failures()
    library.cards[1].is_lost = True
    library.events = [(1, XID_CRITICAL_ERROR, 79)]
    assert failures(nvml) == {T4.uuid: ("Xid79", "Xid error detected on device, error code: 79")}


def test_a_card_that_reports_no_errors(driver: Driver) -> None:
    nvml, _ = driver.open(replace(A100, hides_events=True))
    assert [failure.code for failure in nvml.failures().values()] == ["DeviceHealthCheckNotSupported"]


def test_the_library_is_initialised_once_and_shut_down(driver: Driver) -> None:
    nvml, library = driver.open(A100)
    nvml.failures()
    assert library.initialised == 1
    nvml.close()
    assert library.initialised == 0


def test_a_library_that_cannot_be_used_is_not_left_initialised(driver: Driver) -> None:
    library = CLibrary([A100], absent=["nvmlSystemGetDriverVersion"])
    missing = open_nvml(driver.host, lambda: driver.bindings(library))
    assert isinstance(missing, Unavailable)
    assert (missing.reason, library.initialised) == ("NVML: Function Not Found", 0)


def test_a_driver_that_the_program_cannot_reach(driver: Driver) -> None:
    missing = open_nvml(driver.host, lambda: driver.bindings(CLibrary([], init_result=DRIVER_NOT_LOADED)))
    assert isinstance(missing, Unavailable)
    assert missing.reason == "NVML: Driver Not Loaded"


def test_the_fake_of_other_tests_is_called_as_the_bindings_are() -> None:
    pynvml = importlib.import_module("pynvml")
    functions = {name: value for name, value in vars(FakeNvmlLibrary).items() if name.startswith("nvmlDevice")}
    assert len(functions) > 5
    for name, function in functions.items():
        own = list(inspect.signature(function).parameters)[1:]
        theirs = inspect.signature(getattr(pynvml, name)).parameters.values()
        required = [parameter.name for parameter in theirs if parameter.default is inspect.Parameter.empty]
        assert len(own) == len(required), name
    errors = [value for name, value in vars(FakeNvmlLibrary).items() if name.startswith("NVMLError_")]
    assert errors
    assert all(issubclass(getattr(pynvml, error.__name__), pynvml.NVMLError) for error in errors)
