"""koordlet's readings of a real NVIDIA GPU, beside those of nvidia-smi in the same run. No setting is changed.

Skipped where NVML cannot be used; the reason says what it needs. ``make test-gpu`` requires a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from koordinator.koordlet.report.devices.description import describe_devices
from koordinator.koordlet.report.devices.reporter import DeviceSources
from koordinator.koordlet.report.devices.xpu_files import XPUFiles
from koordinator.node.errors import Unavailable
from koordinator.node.features import Works, probe_gpus
from koordinator.node.host import Host
from koordinator.node.nvml import NVML, GPUProcess, open_nvml
from koordinator.node.pci import pci_address
from tests.gpu.cuda_process import cuda_process
from tests.gpu.nvidia_smi import list_gpus
from tests.real.polling import until

pytestmark = pytest.mark.gpu

HELD = 2048
"""MiB that the process holds; its CUDA context takes some hundreds more."""
BUSY = 50
"""Percent that a process has which does nothing but compute, at least."""


@pytest.fixture
def nvml() -> Iterator[NVML]:
    opened = open_nvml(Host())
    if isinstance(opened, Unavailable):
        if "KOORDINATOR_GPU_REQUIRED" in os.environ:
            pytest.fail(str(opened))
        pytest.skip(f"{opened.reason}; it needs {opened.needs}")
    yield opened
    opened.close()


def test_the_cards_are_those_of_nvidia_smi(nvml: NVML) -> None:
    listing = list_gpus()
    ours = [(gpu.uuid, gpu.minor, gpu.model, gpu.bus_id, (gpu.memory or 0) >> 20) for gpu in nvml.gpus]
    theirs = [(gpu.uuid, gpu.minor, gpu.model, pci_address(gpu.bus_id), gpu.memory) for gpu in listing.gpus]
    assert ours == theirs
    assert nvml.driver_version == listing.driver_version


def test_the_device_object(nvml: NVML, tmp_path: Path) -> None:
    report = describe_devices(DeviceSources(Host(), XPUFiles(str(tmp_path)), nvml).take(), datetime.now(UTC))
    assert len(report.devices) == len(nvml.gpus)
    for device in report.devices:
        assert device.health, device.conditions
        assert device.topology is not None
        folder = Path("/sys/bus/pci/devices", device.topology.bus_id)
        assert device.topology.node_id == max(0, int((folder / "numa_node").read_text()))
        assert f"/{device.topology.pcie_id}/" in str(folder.resolve())
        assert str(folder.resolve()).endswith(f"/{device.topology.bus_id}")
        assert (folder / "vendor").read_text() == "0x10de\n"
    assert report.labels["node.koordinator.sh/gpu-vendor"] == "nvidia"
    assert report.labels["node.koordinator.sh/gpu-driver-version"] == list_gpus().driver_version


def test_a_process_that_computes_then_rests_then_ends(nvml: NVML) -> None:
    """A card that is at rest must be reported so within some seconds, though the driver keeps its samples."""
    if any(gpu.has_mig for gpu in list_gpus().gpus):
        pytest.skip("NVML does not tell the utilisation of processes on a GPU with MIG enabled; it needs one without")
    with cuda_process(HELD) as process:
        until(lambda: found(nvml, process.pid), 10, "the process")
        process.work()
        until(lambda: core(nvml, process.pid) >= BUSY, 20, f"{BUSY} % of the card")
        assert memory_of(nvml, process.pid) >= HELD
        (listed,) = [gpu.processes[process.pid] for gpu in list_gpus().gpus if process.pid in gpu.processes]
        assert listed is None or memory_of(nvml, process.pid) == listed
        process.rest()
        until(lambda: core(nvml, process.pid) == 0, 20, "0 %")
        assert memory_of(nvml, process.pid) >= HELD
        pid = process.pid
    until(lambda: not found(nvml, pid), 10, "a process that has ended is gone")


def found(nvml: NVML, pid: int) -> list[GPUProcess]:
    """On whichever card."""
    return [process for processes in nvml.processes().values() for process in processes if process.pid == pid]


def core(nvml: NVML, pid: int) -> int:
    return sum(process.core_percent for process in found(nvml, pid))


def memory_of(nvml: NVML, pid: int) -> int:
    """In MiB."""
    return sum(process.memory for process in found(nvml, pid)) >> 20


def test_what_koord_doctor_says(nvml: NVML) -> None:
    state = probe_gpus(Host())
    assert isinstance(state, Works), state
    assert list_gpus().driver_version in state.detail
    assert all(gpu.model in state.detail for gpu in list_gpus().gpus)


def test_the_device_daemon_leaves_these_cards_to_koordlet(nvml: NVML) -> None:
    command = [sys.executable, "-m", "koordinator.device_daemon", "--oneshot", "--prints-output-file="]
    ran = subprocess.run(
        [*command, "--host-root=", "--sys-root-dir=/sys"], check=True, capture_output=True, text=True, timeout=60
    )
    assert [device["vendor"] for device in json.loads(ran.stdout) if device["vendor"] == "nvidia"] == []
