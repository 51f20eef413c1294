"""All vendors together: who is queried, in which order, and what becomes of one that does not respond."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from koordinator.device_daemon.discovery import Discovery, Inventory
from koordinator.device_daemon.kunlun import Kunlun
from koordinator.device_daemon.machine import Found, Machine, ToolError
from koordinator.node.errors import FileError
from koordinator.node.pci import PciBus, PciDevice
from tests.device_daemon.machines import (
    FakeTools,
    add_pci_device,
    machine,
    mlu_card,
    mlu_tools,
    mx_tools,
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


def health(inventory: Inventory, vendor: str) -> dict[str, tuple[bool, str]]:
    """By UUID: whether the device is healthy, and what is wrong with it."""
    return {
        device.uuid: (device.status.healthy, device.status.error_message)
        for device in inventory.devices
        if device.vendor == vendor and device.status is not None
    }


def test_devices_that_left_the_bus_are_not_healthy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where there was none, there is none."""
    discovery = Discovery(all_vendors(tmp_path))
    look(discovery)
    (tmp_path / "sys/bus/pci/devices/0000:1a:00.0").unlink()
    why = "the PCI bus has no device of its vendor any more"
    for _ in range(3):
        inventory = look(discovery)
        assert health(inventory, "kunlun") == {"xpu-0": (False, why), "xpu-1": (False, why)}
        assert all(healthy for healthy, _ in health(inventory, "huawei").values())
    assert caplog.text.count("xpu-0 (minor number 0) is not healthy") == 1


def test_a_device_that_the_tool_no_longer_lists_is_not_healthy_until_it_is_listed_again(tmp_path: Path) -> None:
    made = all_vendors(tmp_path)
    discovery = Discovery(made)
    look(discovery)
    rows = str(outputs(made)["xpu_smi -m"]).splitlines()
    outputs(made)["xpu_smi -m"] = rows[1]
    lost = (False, "the tool no longer lists it")
    for _ in range(2):
        inventory = look(discovery)
        assert health(inventory, "kunlun") == {"xpu-0": lost, "xpu-1": (True, "")}
    (first,) = [device for device in inventory.devices if device.uuid == "xpu-0"]
    assert first.status is not None
    assert first.status.error_code == "DeviceLost"
    outputs(made)["xpu_smi -m"] = "\n".join(rows)
    assert health(look(discovery), "kunlun") == {"xpu-0": (True, ""), "xpu-1": (True, "")}


def test_a_device_that_does_not_respond_any_more_is_not_healthy_and_says_why(tmp_path: Path) -> None:
    made = all_vendors(tmp_path)
    discovery = Discovery(made)
    look(discovery)
    outputs(made)["npu-smi info -t board -i 1"] = HUNG
    found = health(look(discovery), "huawei")
    assert found == {"npu-1-0": (False, "NPU 1 is left out: no response within 30 s"), "npu-2-1": (True, "")}


def test_a_device_that_was_replaced_is_gone(tmp_path: Path) -> None:
    """Another one has its number."""
    made = all_vendors(tmp_path)
    discovery = Discovery(made)
    look(discovery)
    outputs(made)["mx-smi --list"] = str(outputs(made)["mx-smi --list"]).replace("GPU-0001", "GPU-new")
    assert set(health(look(discovery), "metax")) == {"GPU-0000", "GPU-new"}


def test_two_devices_with_one_number_are_named_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = all_vendors(tmp_path)
    mapping = str(outputs(made)["npu-smi info -m"])
    outputs(made)["npu-smi info -m"] = mapping.replace(
        "2                              0                              1 ",
        "2                              0                              0 ",
    )
    inventory = look(Discovery(made))
    assert "huawei" not in vendors(inventory)
    assert set(vendors(inventory)) == {"cambricon", "kunlun", "metax"}
    both = "npu-1-0 (minor number 0, 0000:c1:00.0) and npu-2-0 (minor number 0, 0000:c2:00.0)"
    assert f"{both} have one minor number, 0: both are left out" in caplog.text


@pytest.mark.parametrize(
    ("output", "what"),
    [
        (mlu_card(1).replace("000000000001", "000000000000"), "one UUID"),
        (mlu_card(1).replace(": 41", ": 40"), "one PCI address, 0000:40:00.0"),
    ],
)
def test_two_devices_that_cannot_be_told_apart_are_an_error(
    output: str, what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = all_vendors(tmp_path)
    outputs(made)["cnmon info -c 1"] = output
    assert "cambricon" not in vendors(look(Discovery(made)))
    assert f"have {what}" in caplog.text


def test_a_device_that_is_listed_twice_is_there_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = all_vendors(tmp_path)
    outputs(made)["cnmon -l"] = str(outputs(made)["cnmon -l"]).replace("Card 1", "Card 0")
    assert vendors(look(Discovery(made))).count("cambricon") == 1
    assert "are one device, which is listed twice" in caplog.text


def test_chips_of_one_card_may_have_one_address(tmp_path: Path) -> None:
    """As those of a 300I Duo."""
    made = all_vendors(tmp_path)
    mapping = "NPU ID  Chip ID  Chip Logic ID  Chip Name\n1  0  0  Ascend 910B3\n1  1  1  Ascend 910B3\n"
    memory = "HBM Capacity(MB) : 65536"
    outputs(made).update(
        {
            "npu-smi info -m": mapping,
            "npu-smi info -l": "NPU ID : 1\n",
            **{f"npu-smi info -t memory -i 1 -c {chip}": memory for chip in (0, 1)},
        }
    )
    found = [device for device in look(Discovery(made)).devices if device.vendor == "huawei"]
    assert [(device.minor, device.topology and device.topology.bus_id) for device in found] == [
        ("0", "0000:c1:00.0"),
        ("1", "0000:c1:00.0"),
    ]


def test_a_problem_that_stays_is_logged_once_and_again_when_it_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = all_vendors(tmp_path)
    discovery = Discovery(made)
    sound = outputs(made)["xpu_smi -m"]
    for output in (HUNG, HUNG, sound, HUNG):
        outputs(made)["xpu_smi -m"] = output
        look(discovery)
    assert caplog.text.count("error getting baidu devices: no response within 30 s") == 2


class _Slow:
    """A vendor whose tool responds when nobody waits any more."""

    name = "slow"
    pci_vendor = "9999"
    other_products: frozenset[str] = frozenset()

    async def devices(self, machine: Machine) -> Found:
        await asyncio.Event().wait()
        raise AssertionError("it never responds")


def test_a_vendor_that_takes_too_long_does_not_keep_the_others_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inventory = look(Discovery(all_vendors(tmp_path), (_Slow(), Kunlun()), seconds=0.01))
    assert (vendors(inventory), inventory.failed) == (["kunlun"] * 2, ["slow"])
    assert "error getting slow devices: not all are listed after 0.01 s" in caplog.text


def test_a_device_that_is_left_out_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = all_vendors(tmp_path)
    outputs(made)["npu-smi info -t board -i 1"] = "nothing"
    look(Discovery(made))
    assert "huawei: NPU 1 is left out: npu-smi info -t board says no PCIe Bus Info" in caplog.text


class _NoBus(PciBus):
    def devices(self) -> list[PciDevice]:
        raise FileError("/sys/bus/pci/devices", "Permission denied")


def test_a_bus_that_cannot_be_listed_leaves_the_devices_as_they_were(tmp_path: Path) -> None:
    made = all_vendors(tmp_path)
    discovery = Discovery(made)
    before = look(discovery)
    discovery.machine = replace(made, pci=_NoBus())
    after = look(discovery)
    assert after.devices == before.devices
    assert set(after.failed) == {"huawei", "cambricon", "baidu", "metax"}
