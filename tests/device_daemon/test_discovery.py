"""All vendors together: who is queried, in which order, and what becomes of one that does not respond."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from koordinator.device_daemon.discovery import Discovery, Inventory
from koordinator.device_daemon.machine import Machine, ToolError
from tests.device_daemon.machines import (
    FakeTools,
    add_pci_device,
    machine,
    mlu_tools,
    mx_tools,
    npu_board,
    npu_tools,
    xpu_tools,
)

HUNG = ToolError("no response within 30 s")


def all_vendors(root: Path) -> Machine:
    for address, vendor in (("0000:c1:00.0", "19e5"), ("0000:40:00.0", "cabc"), ("0000:1a:00.0", "1d22")):
        add_pci_device(root, address, vendor, "0001")
    add_pci_device(root, "0000:01:00.0", "9999", "0001")
    made = machine(root, {**npu_tools(), **mlu_tools(), **xpu_tools(), **mx_tools()})
    for number in (0, 1):
        (root / f"dev/davinci{number}").touch()
    return made


def look(discovery: Discovery) -> Inventory:
    return asyncio.run(discovery.discover())


def vendors(inventory: Inventory) -> Sequence[str]:
    return [device.vendor for device in inventory.devices]


def outputs(machine: Machine) -> dict[str, str | ToolError]:
    assert isinstance(machine.tools, FakeTools)
    return machine.tools.outputs


def test_the_order_is_always_the_same(tmp_path: Path) -> None:
    inventory = look(Discovery(all_vendors(tmp_path)))
    assert vendors(inventory) == ["huawei"] * 2 + ["cambricon"] * 2 + ["kunlun"] * 2 + ["metax"] * 2
    assert inventory.failed == []


def test_nvidias_cards_are_left_to_koordlet(tmp_path: Path) -> None:
    """An H200 and an NVSwitch."""
    add_pci_device(tmp_path, "0001:00:00.0", "10de", "2335")
    add_pci_device(tmp_path, "0002:00:00.0", "10de", "22a3")
    made = machine(tmp_path, {})
    assert look(Discovery(made)) == Inventory([], [])
    assert isinstance(made.tools, FakeTools)
    assert made.tools.commands == []


@pytest.mark.parametrize("product", ["1710", "1711"])
def test_no_tool_is_run_where_there_is_no_accelerator(product: str, tmp_path: Path) -> None:
    add_pci_device(tmp_path, "0000:00:00.0", "19e5", product)
    add_pci_device(tmp_path, "0000:00:01.0", "8086", "0001")
    made = machine(tmp_path, npu_tools())
    assert look(Discovery(made)).devices == []
    assert isinstance(made.tools, FakeTools)
    assert made.tools.commands == []


def test_a_vendor_that_fails_does_not_keep_the_others_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = all_vendors(tmp_path)
    outputs(made)["xpu_smi -m"] = HUNG
    inventory = look(Discovery(made))
    assert set(vendors(inventory)) == {"huawei", "cambricon", "metax"}
    assert inventory.failed == ["baidu"]
    assert "error creating printer: error getting baidu devices: no response within 30 s" in caplog.text


def test_the_devices_of_a_vendor_that_fails_later_stay(tmp_path: Path) -> None:
    made = all_vendors(tmp_path)
    discovery = Discovery(made)
    before = look(discovery)
    outputs(made)["npu-smi info -m"] = HUNG
    assert look(discovery).devices == before.devices


def test_devices_that_left_the_bus_are_gone(tmp_path: Path) -> None:
    discovery = Discovery(all_vendors(tmp_path))
    look(discovery)
    (tmp_path / "sys/bus/pci/devices/0000:1a:00.0").unlink()
    assert "kunlun" not in vendors(look(discovery))


def test_a_device_that_is_left_out_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = all_vendors(tmp_path)
    outputs(made)["npu-smi info -t board -i 1"] = npu_board("0000:C1:00.0").replace("Chip Fault", "Chip Fault : x #")
    outputs(made)["npu-smi info -t board -i 1"] = "nothing"
    look(Discovery(made))
    assert "a device of huawei is left out: NPU 1: npu-smi info -t board says no PCIe Bus Info" in caplog.text


def test_a_bus_that_cannot_be_listed_leaves_the_devices_as_they_were(tmp_path: Path) -> None:
    discovery = Discovery(all_vendors(tmp_path))
    before = look(discovery)
    folder = tmp_path / "sys/bus/pci/devices"
    discovery.machine.pci._folder = "/proc/self/mem"  # no folder, but there
    folder.rename(tmp_path / "moved")
    after = look(discovery)
    assert before.devices != after.devices == []
