"""Machines with made hardware: a PCI bus below a folder, device files, and tools that print what they are told to.

The texts have the form of the vendors' tools, as their manuals show it; ``tests.real_world.device_tools`` has some that
others have recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from koordinator.device_daemon.machine import Machine, ToolError
from koordinator.node.pci import PciBus

NPU_MAPPING = """\
        NPU ID                         Chip ID                        Chip Logic ID                  Chip Name
        1                              0                              0                              Ascend 910B3
        1                              1                              -                              Mcu
        2                              0                              1                              Ascend 910B3
        2                              1                              -                              Mcu
"""
NPU_LIST = """\
        Total Count                    : 2

        NPU ID                         : 1
        Chip Count                     : 1

        NPU ID                         : 2
        Chip Count                     : 1
"""
NPU_MEMORY = """\
        NPU ID                         : 1
        DDR Capacity(MB)               : 0
        HBM Capacity(MB)               : 65536
"""
NPU_COMMON = """\
        NPU ID                         : 1
        Aicore Count                   : 20
"""


def npu_board(bus_id: str, faults: int = 0) -> str:
    return f"""\
        NPU ID                         : 1
        Product Name                   : IT21HMDB01
        PCIe Bus Info                  : {bus_id}
        Chip Fault                     : {faults}
"""


def npu_tools() -> dict[str, str]:
    """Of two Ascend 910B3."""
    return {
        "npu-smi info -m": NPU_MAPPING,
        "npu-smi info -l": NPU_LIST,
        "npu-smi info -t memory -i 1": NPU_MEMORY,
        "npu-smi info -t memory -i 2": NPU_MEMORY,
        "npu-smi info -t common -i 1": NPU_COMMON,
        "npu-smi info -t common -i 2": NPU_COMMON,
        "npu-smi info -t board -i 1": npu_board("0000:C1:00.0"),
        "npu-smi info -t board -i 2": npu_board("0000:C2:00.0"),
    }


def mlu_card(index: int, health: str = "Good") -> str:
    return f"""\
Card {index}
    Product Name                   : MLU370-X8
    UUID                           : a0b0c0d0-0000-0000-0000-00000000000{index}
    NUMA node id                   : {index}
    Domain ID                      : 0000
    Bus num                        : 4{index}
    Device                         : 00
    Function                       : 0
    Health
        Device                     : {health}
"""


MLU_MEMORY = """\
    Physical Memory Usage
        Total                      : 24576 MiB
        Used                       : 1 MiB
"""


def mlu_tools() -> dict[str, str]:
    """Of two MLU370."""
    return {
        "cnmon -l": "Card 0: MLU370-X8 (UUID: a0)\nCard 1: MLU370-X8 (UUID: a1)\n",
        "cnmon info": MLU_MEMORY * 2,
        "cnmon info -c 0": mlu_card(0),
        "cnmon info -c 1": mlu_card(1),
    }


def xpu_row(bus_id: str, device: int, board: str = "") -> str:
    """Words 1, 3, 4, 19 and 22 are the PCI address, the number, the serial number, the memory and the model."""
    words = [bus_id, str(device), str(device), board or f"02K15K{device:08}", "36", "0", "0", "0", "86", *["1450"] * 6]
    return " ".join([*words, "2", "96", "0", "32768", "0", "1.0:2.6:1.39.1.7", "R200", "0", "0"])


def xpu_tools() -> dict[str, str]:
    """Of two Kunlun R200."""
    rows = [xpu_row("0000:1a:00.0", 0), xpu_row("0000:1b:00.0", 1)]
    return {
        "xpu_smi -m": "\n".join(rows) + "\n",
        "xpu_smi -m -d /dev/xpu0": rows[0],
        "xpu_smi -m -d /dev/xpu1": rows[1],
    }


def mx_hardware(index: int) -> str:
    return f"""\
GPU#{index}  MXC500  0000:{index:02x}:00.0
    Model Name : MXC500
    Memory Capacity : 64GB
"""


def mx_ecc(sram: int = 0, dram: int = 0, double: int = 0) -> str:
    return f"SRAM Uncorrectable : {sram}\nDRAM Uncorrectable : {dram}\nDouble Bit ECC : {double}\nRetired Page : 7\n"


def mx_tools(count: int = 2) -> dict[str, str]:
    """Of MXC500s."""
    tools = {
        "mx-smi --show-hwinfo": "".join(map(mx_hardware, range(count))),
        "mx-smi --list": "".join(
            f"GPU#{i}    MXC500      0000:{i:02x}:00.0   Available (UUID: GPU-{i:04})\n" for i in range(count)
        ),
    }
    for index in range(count):
        tools[f"mx-smi --count-ecc -i {index}"] = mx_ecc()
    return tools


class FakeTools:
    """Prints ``outputs[command]``; an error is raised, and every other command is not found."""

    def __init__(self, outputs: Mapping[str, str | ToolError]) -> None:
        self.outputs = dict(outputs)
        self.commands: list[str] = []

    async def run(self, tool: str, *arguments: str) -> str:
        command = " ".join((tool, *arguments))
        self.commands.append(command)
        response = self.outputs.get(command, ToolError(f"{command}: exit status 127, output ''"))
        if isinstance(response, ToolError):
            raise response
        return response


def add_pci_device(
    root: Path, address: str, vendor: str, product: str, node: int = 0, pcie: str = "pci0000:c0"
) -> None:
    """As in sysfs: the entry of the bus is a link to the place in the tree."""
    device = root / "sys/devices" / pcie / address
    device.mkdir(parents=True)
    for name, content in (("vendor", f"0x{vendor}"), ("device", f"0x{product}"), ("numa_node", str(node))):
        (device / name).write_text(f"{content}\n")
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / address).symlink_to(device)


def machine(root: Path, outputs: Mapping[str, str | ToolError]) -> Machine:
    (root / "dev").mkdir(exist_ok=True)
    return Machine(FakeTools(outputs), PciBus(f"{root}/sys/bus/pci/devices"), f"{root}/dev")


def npu_machine(root: Path, outputs: Mapping[str, str | ToolError] | None = None) -> Machine:
    """Two cards at c1 and c2, with /dev/davinci0 and 1."""
    for address, node in (("0000:c1:00.0", 0), ("0000:c2:00.0", 1)):
        add_pci_device(root, address, "19e5", "d802", node)
    made = machine(root, {**npu_tools(), **(outputs or {})})
    for number in (0, 1):
        (root / f"dev/davinci{number}").touch()
    return made
