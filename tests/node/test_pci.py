"""PCI devices from a made sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.node.errors import MissingFileError
from koordinator.node.pci import PciBus, PciDevice, PciPlacement, pci_address


def add(root: Path, address: str, *, node: str = "0", parent: str = "pci0000:80/0000:80:01.0") -> Path:
    device = root / "devices" / parent / address
    device.mkdir(parents=True)
    for name, content in (("vendor", "0x19E5"), ("device", "0xd802"), ("numa_node", node)):
        (device / name).write_text(f"{content}\n")
    bus = root / "bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / address).symlink_to(device)
    return device


def bus(root: Path) -> PciBus:
    return PciBus(f"{root}/bus/pci/devices")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:C1:00.0", "0000:c1:00.0"),
        ("c1:00.0", "0000:c1:00.0"),
        (" 00000000:C1:00.0\n", "0000:c1:00.0"),
        ("10000:01:00.1", "10000:01:00.1"),
        ("N/A", "N/A"),
        ("", ""),
    ],
)
def test_addresses_get_the_kernels_form(text: str, address: str) -> None:
    assert pci_address(text) == address


def test_identifiers_have_no_prefix_and_are_in_lower_case(tmp_path: Path) -> None:
    add(tmp_path, "0000:81:00.0")
    assert bus(tmp_path).devices() == [PciDevice("0000:81:00.0", "19e5", "d802")]


def test_a_machine_without_a_bus_has_no_devices(tmp_path: Path) -> None:
    assert bus(tmp_path).devices() == []


def test_a_device_that_goes_away_meanwhile_is_left_out(tmp_path: Path) -> None:
    (add(tmp_path, "0000:81:00.0") / "vendor").unlink()
    add(tmp_path, "0000:82:00.0")
    assert [device.address for device in bus(tmp_path).devices()] == ["0000:82:00.0"]


@pytest.mark.parametrize(("numa_node", "expected"), [("1", 1), ("-1", 0)])
def test_the_place_of_a_device(numa_node: str, expected: int, tmp_path: Path) -> None:
    add(tmp_path, "0000:81:00.0", node=numa_node)
    assert bus(tmp_path).placement("0000:81:00.0") == PciPlacement("0000:81:00.0", expected, "pci0000:80")


def test_a_device_that_hangs_from_no_root_has_none(tmp_path: Path) -> None:
    add(tmp_path, "0000:81:00.0", parent="platform")
    assert bus(tmp_path).placement("81:00.0").root == ""


def test_a_device_that_is_not_there_has_no_place(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        bus(tmp_path).placement("0000:81:00.0")
