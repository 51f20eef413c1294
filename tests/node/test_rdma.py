"""RDMA cards of a machine, with and without virtual functions."""

from __future__ import annotations

from pathlib import Path

from koordinator.node.pci import PciPlacement
from koordinator.node.rdma import RDMADevice, read_rdma_devices
from tests.node.machine import FakeMachine

BUS = "/sys/bus/pci/devices"


def add_card(machine: FakeMachine, bus: int, name: str, *states: str, kind: str = "0x020000") -> str:
    """A card on a PCIe root of its own; its PCI address."""
    address = f"0000:{bus:02x}:00.0"
    real = f"/sys/devices/pci0000:{bus:02x}/{address}"
    machine.write(f"{real}/class", f"{kind}\n")
    machine.write(f"{real}/numa_node", "1\n")
    if name:
        machine.write(f"{real}/infiniband/{name}/node_guid", "0\n")
    for port, state in enumerate(states):
        machine.write(f"/sys/class/infiniband/{name}/ports/{port + 1}/state", f"{state}\n")
    link = machine.root / f"{BUS.lstrip('/')}/{address}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(machine.root / real.lstrip("/"))
    return address


def test_a_machine_without_a_pci_bus_has_none(tmp_path: Path) -> None:
    assert read_rdma_devices(FakeMachine(tmp_path).host) == ()


def test_cards_by_their_numbers(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    add_card(machine, 0x81, "mlx5_1", "4: ACTIVE", "1: DOWN")
    add_card(machine, 0x41, "mlx5_0", "4: ACTIVE")
    add_card(machine, 0x42, "mlx5_2")
    assert read_rdma_devices(machine.host) == (
        RDMADevice(0, True, PciPlacement("0000:41:00.0", 1, "pci0000:41")),
        RDMADevice(1, False, PciPlacement("0000:81:00.0", 1, "pci0000:81")),
        RDMADevice(2, False, PciPlacement("0000:42:00.0", 1, "pci0000:42")),
    )


def test_what_is_no_rdma_card_is_left_out(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    add_card(machine, 0x41, "")
    add_card(machine, 0x42, "irdma0", "4: ACTIVE")
    add_card(machine, 0x43, "mlx5_0", "4: ACTIVE", kind="0x030000")
    assert read_rdma_devices(machine.host) == ()


def test_virtual_functions_belong_to_their_card(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    card = tmp_path / BUS.lstrip("/") / add_card(machine, 0x41, "mlx5_0", "4: ACTIVE")
    for bus, name in ((0x52, "virtfn1"), (0x51, "virtfn0")):
        function = tmp_path / BUS.lstrip("/") / add_card(machine, bus, f"mlx5_{bus}", "4: ACTIVE")
        (card / name).symlink_to(function.resolve())
        (function / "physfn").symlink_to(card.resolve())
    (only,) = read_rdma_devices(machine.host)
    assert only.virtual_functions == ()
    (card / "sriov_numvfs").write_text("2\n")
    (only,) = read_rdma_devices(machine.host)
    assert only.virtual_functions == ("0000:51:00.0", "0000:52:00.0")
