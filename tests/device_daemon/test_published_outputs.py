"""What others have published of the vendors' tools: which devices it lists."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from koordinator.api.xpu_device_info import XPUStatus
from koordinator.device_daemon.cambricon import Cambricon
from koordinator.device_daemon.huawei import Huawei
from koordinator.device_daemon.identity import only_distinct
from koordinator.device_daemon.kunlun import Kunlun
from koordinator.device_daemon.machine import Found, Problem, ToolError, Vendor
from koordinator.device_daemon.metax import MetaX
from tests.device_daemon.machines import machine, npu_board
from tests.real_world.device_tools import (
    MLU_OF_CNMON_4,
    MX_ECC,
    NPU_BOARD,
    NPU_OF_ASCEND_310,
    NPU_OF_TWO_CHIPS,
    Listing,
    listings,
)

UNSUPPORTED = ToolError("exit status 255, output 'Unsupported'")


def found(vendor: Vendor, root: Path, tools: dict[str, str | ToolError], files: int = 0) -> Found:
    made = machine(root, tools)
    for number in range(files):
        (root / f"dev/davinci{number}").touch()
    return only_distinct(asyncio.run(vendor.devices(made)))


def listed(response: Found) -> dict[str, tuple[str, str]]:
    return {device.uuid: (device.minor, device.model) for device in response.devices}


def npu_tools(listing: Listing) -> dict[str, str | ToolError]:
    """What npu-smi says of the cards of ``listing`` besides it."""
    cards = sorted({uuid.split("-")[1] for uuid in listing.devices})
    count = len(listing.devices) // len(cards)
    tools: dict[str, str | ToolError] = {
        listing.command: listing.output,
        "npu-smi info -l": "".join(f"\tNPU ID                         : {card}\n\n" for card in cards),
    }
    for number, card in enumerate(cards):
        tools[f"npu-smi info -t board -i {card}"] = npu_board(f"0000:{number:02X}:00.0")
        tools[f"npu-smi info -t common -i {card}"] = "".join(
            f"\n\tChip ID                        : {chip}\n\tAicore Count                   : 24\n"
            for chip in range(count)
        )
        for chip in ("", *(f" -c {chip}" for chip in range(4))):
            tools[f"npu-smi info -t cpu-num-cfg -i {card}{chip}"] = "Current AI CPU number          : 1"
            tools[f"npu-smi info -t memory -i {card}{chip}"] = "HBM Capacity(MB)               : 65536"
    return tools


@pytest.mark.parametrize("listing", listings("npu-smi"), ids=lambda listing: listing.name)
def test_npus(listing: Listing, tmp_path: Path) -> None:
    response = found(Huawei(), tmp_path, npu_tools(listing), files=16)
    assert listed(response) == listing.devices


def test_each_chip_of_a_card_has_its_own_address_where_it_has_one(tmp_path: Path) -> None:
    """As on Atlas A3, where the chips of card 0 are at 9d and 9f (npu-smi 25.5.1)."""
    (listing,) = [listing for listing in listings("npu-smi") if listing.name == "atlas-a3"]
    tools = npu_tools(listing)
    for chip, address in enumerate(("0000:9D:00.0", "0000:9F:00.0")):
        tools[f"npu-smi info -t board -i 0 -c {chip}"] = npu_board(address)
    places = {
        device.uuid: device.topology and device.topology.bus_id
        for device in found(Huawei(), tmp_path, tools, 16).devices
    }
    assert (places["npu-0-0"], places["npu-0-1"]) == ("0000:9d:00.0", "0000:9f:00.0")
    assert (places["npu-1-2"], places["npu-1-3"]) == ("0000:01:00.0", "0000:01:00.0")


@pytest.mark.parametrize(
    "spelled", [str, lambda output: output.replace("Chip ID ", "Chip-Id ")], ids=["as published", "in another case"]
)
def test_each_chip_of_a_card_has_its_own_cores_and_ai_cpus(spelled: Callable[[str], str], tmp_path: Path) -> None:
    (listing,) = [listing for listing in listings("npu-smi") if listing.name == "atlas-a3"]
    told = {command: spelled(output) for command, output in NPU_OF_TWO_CHIPS.items()}
    response = found(Huawei(), tmp_path, {**npu_tools(listing), **told}, files=16)
    amounts = {
        device.uuid: (device.resources["huawei.com/npu-core"], device.resources["huawei.com/npu-cpu"])
        for device in response.devices
    }
    assert (amounts["npu-0-0"], amounts["npu-0-1"]) == (("24", "1"), ("20", "2"))


@pytest.mark.parametrize(("faults", "is_healthy"), [("0", True), ("NA", True), ("1", False)])
def test_faults_and_memory_have_other_names_on_ascend_310(faults: str, is_healthy: bool, tmp_path: Path) -> None:
    tools = npu_tools(next(listing for listing in listings("npu-smi") if listing.name == "ascend-950"))
    told = {command: output.format(faults=faults) for command, output in NPU_OF_ASCEND_310.items()}
    first, _ = found(Huawei(), tmp_path, {**tools, **told}, files=2).devices
    assert (first.status and first.status.healthy, first.resources["koordinator.sh/gpu-memory"]) == (
        is_healthy,
        "8192Mi",
    )


def test_an_npu_that_is_on_no_pci_bus_has_no_place(tmp_path: Path) -> None:
    """As those of an Atlas 900 A5 with UB: npu-smi says NA of all."""
    tools = npu_tools(next(listing for listing in listings("npu-smi") if listing.name == "ascend-950"))
    boards = {f"npu-smi info -t board -i {card}": npu_board("NA") for card in (0, 1)}
    response = found(Huawei(), tmp_path, {**tools, **boards}, files=2)
    assert [device.topology and device.topology.bus_id for device in response.devices] == ["", ""]
    assert not response.problems


@pytest.mark.parametrize("others_memory", ["HBM Capacity(MB) : 65536", UNSUPPORTED], ids=["listed", "left-out"])
def test_an_npu_without_an_address_is_left_out_where_another_has_one(
    others_memory: str | ToolError, tmp_path: Path
) -> None:
    """Whether or not the other one is listed in the end."""
    tools = npu_tools(next(listing for listing in listings("npu-smi") if listing.name == "ascend-950"))
    told = {"npu-smi info -t board -i 0": npu_board("NA"), "npu-smi info -t memory -i 1": others_memory}
    response = found(Huawei(), tmp_path, {**tools, **told}, files=2)
    assert "0" not in {device.minor for device in response.devices}
    assert Problem("NPU 0 is left out: it has no PCIe Bus Info, but others have", ("0",)) in response.problems


def test_an_npu_that_is_not_there_is_named(tmp_path: Path) -> None:
    (listing,) = [listing for listing in listings("npu-smi") if listing.name == "an-npu-that-is-not-there"]
    (problem,) = found(Huawei(), tmp_path, npu_tools(listing), files=2).problems
    assert problem.text == "1 row of npu-smi info -m cannot be read, such as '-1  1  0  1  Ascend950PR'"


def test_a_line_below_the_table_is_named_and_costs_nothing(tmp_path: Path) -> None:
    (listing,) = [listing for listing in listings("npu-smi") if listing.name == "atlas-800-3000"]
    (problem,) = found(Huawei(), tmp_path, npu_tools(listing), files=16).problems
    assert problem.text.startswith("1 row of npu-smi info -m cannot be read, such as 'https://support.huawei.com/")


def test_ai_cpus_that_the_tool_does_not_report_cost_their_number_alone(tmp_path: Path) -> None:
    (listing,) = [listing for listing in listings("npu-smi") if listing.name == "ascend-950"]
    tools = npu_tools(listing)
    for card in (0, 1):
        tools[f"npu-smi info -t cpu-num-cfg -i {card}"] = UNSUPPORTED
    response = found(Huawei(), tmp_path, tools, files=2)
    assert [sorted(device.resources) for device in response.devices] == [
        ["huawei.com/npu-core", "huawei.com/npu-dvpp", "koordinator.sh/gpu-memory"]
    ] * 2
    assert "the AI CPUs of NPU 0 are unknown: exit status 255" in response.problems[0].text


def test_a_board_as_npu_smi_25_prints_it(tmp_path: Path) -> None:
    """Without a line about faults."""
    (listing,) = [listing for listing in listings("npu-smi") if listing.name == "ascend-950"]
    tools = {**npu_tools(listing), "npu-smi info -t board -i 0": NPU_BOARD}
    first, _ = found(Huawei(), tmp_path, tools, files=2).devices
    assert first.topology is not None
    assert (first.topology.bus_id, first.status) == ("0000:c1:00.0", XPUStatus(healthy=True))


@pytest.mark.parametrize("listing", listings("xpu_smi"), ids=lambda listing: listing.name)
def test_xpus(listing: Listing, tmp_path: Path) -> None:
    rows = listing.output.splitlines()
    tools: dict[str, str | ToolError] = {
        listing.command: listing.output,
        **{f"xpu_smi -m -d /dev/xpu{number}": row for number, row in enumerate(rows)},
    }
    response = found(Kunlun(), tmp_path, tools)
    assert listed(response) == listing.devices
    assert [device.topology and device.topology.bus_id for device in response.devices] == [
        "0000:03:00.0",
        "0000:05:00.0",
    ]
    assert {device.resources["koordinator.sh/gpu-memory"] for device in response.devices} == {"98304Mi"}


@pytest.mark.parametrize("listing", listings("mx-smi"), ids=lambda listing: listing.name)
def test_gpus_of_metax(listing: Listing, tmp_path: Path) -> None:
    """With the GPUs of the list, what the tool says of the hardware, in its form."""
    heads = {"0": "GPU#0  MXC500  0000:08:00.0", "7": "GPU#7  MXC500  0000:3c:00.0"}
    body = "    Model Name                                    : MXC500\n    Memory Capacity               : 64 GB\n"
    tools: dict[str, str | ToolError] = {
        listing.command: listing.output,
        "mx-smi --show-hwinfo": "mx-smi  version: 2.2.9\n\nAttached GPUs       : 2\n"
        + "".join(f"{head}\n{body}" for head in heads.values())
        + "\nEnd of Log\n",
        **{f"mx-smi --count-ecc -i {index}": MX_ECC for index in heads},
    }
    response = found(MetaX(), tmp_path, tools)
    assert listed(response) == listing.devices
    assert not response.problems


@pytest.mark.parametrize("listing", listings("cnmon"), ids=lambda listing: listing.name)
def test_mlus(listing: Listing, tmp_path: Path) -> None:
    tools: dict[str, str | ToolError] = {
        "cnmon -l": "Card 0: MLU370-X4 (UUID: 77013006-2457-0000-0000-000000000000)\n",
        "cnmon info": listing.output,
        listing.command: listing.output,
    }
    response = found(Cambricon(), tmp_path, tools)
    assert listed(response) == listing.devices
    (device,) = response.devices
    assert device.status == XPUStatus(healthy=True)
    assert device.resources["koordinator.sh/gpu-memory"] == "23308Mi"
    assert device.topology is not None
    assert device.topology.bus_id == "0000:01:00.0"


def test_an_mlu_of_which_cnmon_says_neither_uuid_nor_place_is_named_and_left_out(tmp_path: Path) -> None:
    tools: dict[str, str | ToolError] = {
        "cnmon -l": "Card 0: MLU370-S4 (UUID: 77013006-2457-0000-0000-000000000000)\n",
        "cnmon info": MLU_OF_CNMON_4,
        "cnmon info -c 0": MLU_OF_CNMON_4,
    }
    response = found(Cambricon(), tmp_path, tools)
    assert response.devices == []
    (problem,) = response.problems
    assert problem.text == "MLU 0 is left out: get mlu device info err, no domain id field"
