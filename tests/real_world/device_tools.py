"""What the vendors' tools for accelerators print: as others have published it, and broken in every way that a tool is.

Serial numbers and UUIDs are as published. ``LISTINGS`` are those of which it is known which devices they list;
``BROKEN_TOOLS`` say how a tool of any vendor fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Listing:
    """``output`` of ``command``; it lists ``devices``, by UUID, with the minor number and the model of each."""

    name: str
    what: str
    source: str
    command: str
    output: str
    devices: Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class BrokenTool:
    """What becomes of a sound output. ``status`` is the exit status; a tool that ``hangs`` never ends."""

    name: str
    what: str
    output: Callable[[bytes], bytes]
    status: int = 0
    hangs: bool = False


_GPUSTACK: Final = "github.com/gpustack/gpustack, tests/detectors/npu_smi/data"

_NPU_SMI: Final = "github.com/verylucky01/driver, src/custom/dev_prod/user/npucli/src"
"""A copy of gitcode.com/cann/driver: the source of npu-smi itself."""

LISTINGS: Final[Sequence[Listing]] = (
    Listing(
        "atlas-800-3000",
        "four chips on one card, one column less than now, the address of the manual below the table",
        f"{_GPUSTACK}/ai-server_atlas-800-inference-server_model-3000_version-1.0.11-1.0.15_mapping.txt",
        "npu-smi info -m",
        """\
NPU ID                         Chip ID                        Chip Logic ID                  Chip Name
6                              0                              0                              MiniD
6                              1                              1                              MiniD
6                              2                              2                              MiniD
6                              3                              3                              MiniD
6                              4                              -                              Mcu
https://support.huawei.com/enterprise/zh/doc/EDOC1100115618/51e048c4
""",
        {f"npu-6-{number}": (str(number), "MiniD") for number in range(4)},
    ),
    Listing(
        "atlas-800-9010",
        "one chip on each card, and no row of what manages them",
        f"{_GPUSTACK}/ai-server_atlas-800-training-server_model-9010_version-24.1.RC2_mapping.txt",
        "npu-smi info -m",
        "NPU ID                         Chip ID                        Chip Logic ID                  Chip Name\n"
        + "".join(f"{card:<31}{0:<31}{card:<31}Ascend 910A\n" for card in range(8)),
        {f"npu-{card}-{card}": (str(card), "Ascend-910A") for card in range(8)},
    ),
    Listing(
        "atlas-a3",
        "npu-smi 25: a column with the physical IDs, and two chips on each card",
        "the tests of a launcher of xLLM (the search names no repository), as those of vllm-ascend without blanks",
        "npu-smi info -m",
        "".join(
            "\t" + "".join(f"{cell:<31}" for cell in row).rstrip() + "\n"
            for row in (
                ("NPU ID", "Chip ID", "Chip Logic ID", "Chip Phy-ID", "Chip Name"),
                ("0", "0", "0", "0", "Ascend910"),
                ("0", "1", "1", "1", "Ascend910"),
                ("0", "2", "-", "-", "Mcu"),
                ("1", "0", "2", "2", "Ascend910"),
                ("1", "1", "3", "3", "Ascend910"),
                ("1", "2", "-", "-", "Mcu"),
            )
        ),
        {
            "npu-0-0": ("0", "Ascend910"),
            "npu-0-1": ("1", "Ascend910"),
            "npu-1-2": ("2", "Ascend910"),
            "npu-1-3": ("3", "Ascend910"),
        },
    ),
    Listing(
        "ascend-950",
        "a column with the slot before that of the chip, none with logic IDs: by position, both have the number 0",
        "github.com/SwanHubX/SwanLab, tests/unit/sdk/internal/probe_python/hardware_vendor/test_hardware_huawei.py",
        "npu-smi info -m",
        """\
NPU ID  Slot ID  Chip ID  Chip Phy-ID  Chip Name
0       1        0        0            Ascend950PR
1       2        0        1            Ascend950PR
""",
        {"npu-0-0": ("0", "Ascend950PR"), "npu-1-1": ("1", "Ascend950PR")},
    ),
    Listing(
        "an-npu-that-is-not-there",
        "the manual says of the NPU ID -1 that the NPU is unavailable, and its row not valid",
        "github.com/verylucky01/driver, docs/en/Ascend_950_npu-smi, querying-the-device-mapping-information.md",
        "npu-smi info -m",
        """\
NPU ID          Slot ID          Chip ID          Chip Phy-ID          Chip Name
0               0                0                0                    Ascend950PR
-1              1                0                1                    Ascend950PR
""",
        {"npu-0-0": ("0", "Ascend950PR")},
    ),
    Listing(
        "a-card-with-three-kinds-of-chips",
        "as print_mapping_info prints them: two NPUs, what manages the card, and a CPU that is called 3559",
        f"{_NPU_SMI}/npu_info_print.c",
        "npu-smi info -m",
        "".join(
            "\t" + " ".join(f"{cell:<30}" for cell in row[:-1]) + f" {row[-1]}\n"
            for row in (
                ("NPU ID", "Chip ID", "Chip Logic ID", f"{'Chip Name':<30}"),
                ("2", "0", "0", "Ascend 310P3"),
                ("2", "1", "1", "Ascend 310P3"),
                ("2", "2", "-", f"{'Mcu':<30}"),
                ("2", "3", "-", f"{'3559':<30}"),
            )
        ),
        {"npu-2-0": ("0", "Ascend-310P3"), "npu-2-1": ("1", "Ascend-310P3")},
    ),
    Listing(
        "one-blank-between-columns",
        "as the tests of others abridge it",
        "github.com/vllm-project/vllm-ascend, the tests of cpu_binding",
        "npu-smi info -m",
        "NPU ID Chip ID Chip Logic ID Chip Phy-ID Chip Name\n0 0 0 0 Ascend\n0 1 1 1 Ascend\n0 2 - - Mcu\n",
        {"npu-0-0": ("0", "Ascend"), "npu-0-1": ("1", "Ascend")},
    ),
    Listing(
        "kunlun-p800",
        "a model in quotation marks, with a blank in it, and words behind it",
        "github.com/xyDong0223/infer-forge-harness, tests/unit/test_memory_budget.py",
        "xpu_smi -m",
        "00000000:03:00.0 0 0 02K15K624CV00304 36 0 0 0 86 1450 1450 1450 1450 1450 1450 "
        '2 96 90440 98304 0 1.0:2.6:1.39.1.7 "P800 OAM" 0 0 0 0 0 0 0 0 0 0\n'
        "00000000:05:00.0 1 1 02K15K624CV0030V 39 0 0 0 86 1450 1450 1450 1450 1450 1450 "
        '2 96 90440 98304 0 1.0:2.6:1.39.1.7 "P800 OAM" 0 0 0 0 0 0 0 0 0 0\n',
        {"xpu-0": ("0", "P800-OAM"), "xpu-1": ("1", "P800-OAM")},
    ),
    Listing(
        "mx-smi-2.2.9",
        "lines above the list, and numbers that are not all there",
        "github.com/BaizeAI/kcover, pkg/detector/node/metax/metax.go",
        "mx-smi --list",
        """\
mx-smi  version: 2.2.9
GPU#0    MXC500      0000:08:00.0   Available (UUID: GPU-e702f06b-bbd6-bc06-5196-90a5554a24ba)
GPU#7    MXC500      0000:3c:00.0   Available (UUID: GPU-0e715b45-bcef-1500-e2db-752724095700)
""",
        {
            "GPU-e702f06b-bbd6-bc06-5196-90a5554a24ba": ("0", "MXC500"),
            "GPU-0e715b45-bcef-1500-e2db-752724095700": ("7", "MXC500"),
        },
    ),
    Listing(
        "cnmon-5.10.22",
        "the health before the place on the PCI bus, both with a line that is called Device, and no NUMA node",
        "what cnmon v5.10.22 prints of an MLU370-X4, from the tests of a monitor (the search names no repository)",
        "cnmon info -c 0",
        """\
================CNMON v5.10.22================
Card 0
    Product Name                   : MLU370-X4
    UUID                           : 77013006-2457-0000-0000-000000000000
    Driver                         : v5.10.22
    Health State                   :
        Device                     : Good
        Driver                     : Running
    Utilization                    :
        MLU Average                : 66 %
    Temperature                    :
        Board                      : 64 C
        Chip                       : 78 C
        Memory                     : 63 C
    Physical Memory Usage          :
        Total                      : 23308 MiB
        Used                       : 17320 MiB
        Free                       : 5988 MiB
    Power                          :
        Usage                      : 44 W
        Cap                        : 150 W
    PCI                            :
        Domain ID                  : 0000
        Bus num                    : 01
        Device                     : 00
        Function                   : 0
    Processes                      :
        Process                    : 0
            PID                    : 101934
            cmdline                : /torch/venv3/pytorch_infer/bin/python
            MLU Memory Usage       : 15829 MiB
""",
        {"77013006-2457-0000-0000-000000000000": ("0", "MLU370-X4")},
    ),
)


def listings(tool: str) -> list[Listing]:
    """Those of one tool."""
    return [listing for listing in LISTINGS if listing.command.startswith(f"{tool} ")]


NPU_OF_TWO_CHIPS: Final[Mapping[str, str]] = {
    "npu-smi info -t common -i 0": """\
\tNPU ID                         : 0
\tChip Count                     : 2

\tChip ID                        : 0
\tMemory Usage Rate(%)           : 3
\tHBM Usage Rate(%)              : 5
\tAicore Usage Rate(%)           : 0
\tAicore Freq(MHZ)               : 1800
\tAicore curFreq(MHZ)            : 800
\tAicore Count                   : 24
\tTemperature(C)                 : 46
\tNPU Real-time Power(W)         : 93.4

\tChip ID                        : 1
\tMemory Usage Rate(%)           : 3
\tHBM Usage Rate(%)              : 5
\tAicore Usage Rate(%)           : 0
\tAicore Freq(MHZ)               : 1800
\tAicore curFreq(MHZ)            : 800
\tAicore Count                   : 20
\tTemperature(C)                 : 44
\tNPU Real-time Power(W)         : 90.1

\tChip Name                      : mcu
\tTemperature(C)                 : 38
""",
    "npu-smi info -t cpu-num-cfg -i 0 -c 0": """\
\tCurrent AI CPU number          : 1
\tCurrent control CPU number     : 3
\tCurrent data CPU number        : 0
""",
    "npu-smi info -t cpu-num-cfg -i 0 -c 1": """\
\tCurrent AI CPU number          : 2
\tCurrent control CPU number     : 2
\tCurrent data CPU number        : 0
""",
}
"""As ``print_npu_common_info`` of npu_info_print.c and ``show_ascend_chip_cpu_num_info`` of npu_chip_info_ext.c there
print them; without ``-c`` the second command prints all chips of the card, one after the other."""

NPU_OF_ASCEND_310: Final[Mapping[str, str]] = {
    "npu-smi info -t board -i 0": """\
\tNPU ID                         : 0
\tSoftware Version               : 22.0.0
\tPCIe Bus Info                  : 0000:C1:00.0
\tChip Count                     : 1
\tFaulty Chip Count              : {faults}
""",
    "npu-smi info -t memory -i 0": "\tCapacity(MB)                   : 8192\n\tClock Speed(MHz)               : 1600\n",
}
"""As ``print_npu_card_info`` and ``print_ddr_info`` of npu_info_print.c there print them for the chips 310 and 310B,
with names that no other chip has. In a container the faults are ``NA``."""

MX_ECC: Final = """\
mx-smi  version: 2.2.9

=================== MetaX System Management Interface Log ===================
Timestamp                                         : Thu Apr 23 08:02:53 2026

Attached GPUs                                     : 8
GPU#0  MXC500  0000:08:00.0
    ECC Errors
        SRAM Correctable                          : 0
    Retired Pages
        Double Bit ECC                            : 0
"""
"""``mx-smi --count-ecc``, as github.com/BaizeAI/kcover, pkg/detector/node/metax/metax.go, shows it."""

MLU_OF_CNMON_4: Final = """\
================CNMON v4.20.18================
Card 0
    Product Name                   : MLU370-S4
    Driver                         : v4.20.18
    Utilization                    :
        MLU Average                : 66 %
    Physical Memory Usage          :
        Total                      : 23308 MiB
        Used                       : 4096 MiB
"""
"""``cnmon info -c 0`` abridged, without a UUID and a place on the PCI bus; the source is that of cnmon-5.10.22."""

NPU_BOARD: Final = """\
        NPU ID                         : 0
        Product Name                   : IT21HMDC_Bin5
        Model                          : NA
        Manufacturer                   : Huawei
        Serial Number                  : 1025C9048791
        Software Version               : 25.5.1
        Firmware Version               : 7.8.0.6.201
        Compatibility                  : OK
        Board ID                       : 0x60
        PCB ID                         : A
        BOM ID                         : 1
        PCIe Bus Info                  : 0000:C1:00.0
        Slot ID                        : 0
        Class ID                       : NA
        PCI Vendor ID                  : 0x19E5
        PCI Device ID                  : 0xD802
        Subsystem Vendor ID            : 0x19E5
        Subsystem Device ID            : 0x3003
        Chip Count                     : 1
"""
"""``npu-smi info -t board -i 0`` of npu-smi 25.5.1, from the tests of an input plugin for
github.com/influxdata/telegraf. There is no line about faults."""

BROKEN_TOOLS: Final[Sequence[BrokenTool]] = (
    BrokenTool("nothing", "it prints nothing", lambda sound: b""),
    BrokenTool("blank-lines", "it prints blank lines", lambda sound: b"\n" * 40),
    BrokenTool("noise", "it prints bytes that are no text", lambda sound: bytes(range(256)) * 64),
    BrokenTool("truncated", "it ends in the middle of a line", lambda sound: sound[: len(sound) // 3]),
    BrokenTool(
        "other-locale",
        "it prints its names in Chinese, as the manuals have them",
        lambda sound: "设备ID        : 0\n芯片逻辑ID    : 0\n芯片名称      : 昇腾\n".encode("gb18030"),
    ),
    BrokenTool(
        "driver-message",
        "it says that the driver is not there, and ends as though all were well",
        lambda sound: b"dcmi model initialized failed, because the device is used. ret is -8020\n",
    ),
    BrokenTool(
        "help", "it does not know the option", lambda sound: b"Usage: tool [Options...]\n  -h, --help  this text\n"
    ),
    BrokenTool("exit-status-1", "it prints all, and fails", lambda sound: sound, status=1),
    BrokenTool("hangs", "it prints all, and does not end", lambda sound: sound, hangs=True),
    BrokenTool("huge", "it prints all, and 10 MB behind it", lambda sound: sound + b"x" * (10 << 20)),
)
