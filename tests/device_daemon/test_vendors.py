"""What each vendor's tool prints becomes devices; what it does not print is an error of that device or vendor."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from koordinator.api.device import Device, DeviceSpec
from koordinator.api.meta import ObjectMeta
from koordinator.api.xpu_device_info import XPUDeviceInfo, XPUStatus, XPUTopology, decode_devices, encode_devices
from koordinator.device_daemon.cambricon import Cambricon
from koordinator.device_daemon.huawei import Huawei
from koordinator.device_daemon.kunlun import Kunlun
from koordinator.device_daemon.machine import DiscoveryError, Found, Machine, Problem, ToolError, Vendor
from koordinator.device_daemon.metax import MetaX
from koordinator.koordlet.report.devices.description import Inventory, describe_devices
from koordinator.model.overcommit.device_resources import gpu_resources
from tests.device_daemon.machines import (
    MLU_MEMORY,
    add_pci_device,
    machine,
    mlu_card,
    mlu_tools,
    mx_ecc,
    mx_tools,
    npu_board,
    npu_machine,
    npu_tools,
    xpu_row,
    xpu_tools,
)

SILENT = ToolError("no answer")


def found(vendor: Vendor, machine: Machine) -> Found:
    return asyncio.run(vendor.devices(machine))


def devices(vendor: Vendor, machine: Machine) -> list[XPUDeviceInfo]:
    response = found(vendor, machine)
    assert not response.problems
    return list(response.devices)


class TestHuawei:
    def test_two_cards(self, tmp_path: Path) -> None:
        first, second = devices(Huawei(), npu_machine(tmp_path))
        assert first == XPUDeviceInfo(
            vendor="huawei",
            model="Ascend-910B3",
            uuid="npu-1-0",
            minor="0",
            resources={
                "koordinator.sh/gpu-memory": "65536Mi",
                "huawei.com/npu-cpu": "7",
                "huawei.com/npu-core": "20",
                "huawei.com/npu-dvpp": "100",
            },
            topology=XPUTopology(socket_id="-1", node_id="0", pcie_id="pci0000:c0", bus_id="0000:c1:00.0"),
            status=XPUStatus(healthy=True),
        )
        assert (second.uuid, second.minor, second.topology and second.topology.node_id) == ("npu-2-1", "1", "1")

    def test_faults(self, tmp_path: Path) -> None:
        sick = {"npu-smi info -t board -i 1": npu_board("0000:C1:00.0", 2)}
        first, _ = devices(Huawei(), npu_machine(tmp_path, sick))
        assert first.status == XPUStatus(False, "ChipError", "NPU index 1 has 2 chip faults")

    def test_koordlet_reports_a_fault_as_a_condition_that_an_api_server_takes(self, tmp_path: Path) -> None:
        sick = {"npu-smi info -t board -i 1": npu_board("0000:C1:00.0", 2)}
        written = encode_devices(devices(Huawei(), npu_machine(tmp_path, sick)))
        report = describe_devices(Inventory(xpus=decode_devices(written)), datetime(2026, 1, 1, tzinfo=UTC))
        first, second = report.devices
        (condition,) = first.conditions
        assert (first.health, condition.status, condition.reason) == (False, "False", "ChipError")
        assert condition.message == "NPU index 1 has 2 chip faults"
        assert second.health

    def test_device_files_pair_by_number_where_the_driver_maps_nothing(self, tmp_path: Path) -> None:
        cards = range(12)
        tools = {
            "npu-smi info -m": "NPU ID                Chip Name\n-                     Ascend 910B3\n",
            "npu-smi info -l": "".join(f"NPU ID : {card}\n" for card in cards),
            **{f"npu-smi info -t board -i {card}": npu_board(f"0000:{card:02x}:00.0") for card in cards},
            **{f"npu-smi info -t memory -i {card}": "HBM Capacity(MB) : 1" for card in cards},
            **{f"npu-smi info -t common -i {card}": "Aicore Count : 1" for card in cards},
        }
        made = machine(tmp_path, tools)
        for name in (*(f"davinci{card}" for card in cards), "davinci_manager", "null"):
            (tmp_path / "dev" / name).touch()
        assert [device.uuid for device in devices(Huawei(), made)] == [f"npu-{card}-{card}" for card in cards]

    def test_each_chip_of_a_card_is_a_device_with_its_own_memory(self, tmp_path: Path) -> None:
        tools = {
            "npu-smi info -m": "NPU ID Chip ID Chip Logic ID Chip Name\n5 0 0 Ascend 310P3\n5 1 1 Ascend 310P3\n",
            "npu-smi info -l": "NPU ID : 5\n",
            "npu-smi info -t board -i 5": npu_board("0000:C1:00.0"),
            "npu-smi info -t memory -i 5 -c 0": "DDR Capacity(MB) : 100",
            "npu-smi info -t memory -i 5 -c 1": "DDR Capacity(MB) : 200",
            **{f"npu-smi info -t cpu-num-cfg -i 5 -c {chip}": "Current AI CPU number : 7" for chip in (0, 1)},
        }
        made = machine(tmp_path, tools)
        for number in (0, 1):
            (tmp_path / f"dev/davinci{number}").touch()
        resources = {device.uuid: device.resources for device in devices(Huawei(), made)}
        assert resources.keys() == {"npu-5-0", "npu-5-1"}
        assert resources["npu-5-1"] == {
            "koordinator.sh/gpu-memory": "200Mi",
            "huawei.com/npu-cpu": "7",
            "huawei.com/npu-core": "8",
            "huawei.com/npu-dvpp": "100",
        }

    @pytest.mark.parametrize(
        ("shared", "memory"),
        [
            ("DDR Capacity(MB) : 1000\nHBM Capacity(MB) : 24", "1024Mi"),
            (ToolError("exit status 1", "Command or option is not found"), "21527Mi"),
        ],
    )
    def test_memory_that_is_not_told_for_each_card(self, shared: str | ToolError, memory: str, tmp_path: Path) -> None:
        silent = {f"npu-smi info -t memory -i {card}": SILENT for card in (1, 2)}
        first, _ = devices(Huawei(), npu_machine(tmp_path, {**silent, "npu-smi -t memory -i 1": shared}))
        assert first.resources["koordinator.sh/gpu-memory"] == memory

    def test_a_card_without_a_device_file_is_left_out(self, tmp_path: Path) -> None:
        made = npu_machine(tmp_path)
        (tmp_path / "dev/davinci1").unlink()
        response = found(Huawei(), made)
        assert [device.uuid for device in response.devices] == ["npu-1-0"]
        assert response.problems == [Problem("NPU 2 is left out: there is no /dev/davinci1 for it", ("1",))]

    def test_a_card_that_does_not_respond_is_left_out(self, tmp_path: Path) -> None:
        response = found(Huawei(), npu_machine(tmp_path, {"npu-smi info -t board -i 1": SILENT}))
        assert [device.uuid for device in response.devices] == ["npu-2-1"]
        assert response.problems == [Problem("NPU 1 is left out: no answer", ("0",))]

    def test_a_card_that_is_not_on_the_bus_has_no_place(self, tmp_path: Path) -> None:
        first, _ = devices(Huawei(), npu_machine(tmp_path, {"npu-smi info -t board -i 1": npu_board("00:1F.7")}))
        assert first.topology == XPUTopology(socket_id="-1", node_id="-1", bus_id="0000:00:1f.7")

    @pytest.mark.parametrize("command", ["npu-smi info -m", "npu-smi info -l"])
    @pytest.mark.parametrize("output", ["", "\n", "x", SILENT], ids=["empty", "newline", "word", "error"])
    def test_nothing_can_be_said_without(self, command: str, output: str | ToolError, tmp_path: Path) -> None:
        with pytest.raises(DiscoveryError):
            found(Huawei(), npu_machine(tmp_path, {command: output}))


class TestCambricon:
    def test_two_cards(self, tmp_path: Path) -> None:
        add_pci_device(tmp_path, "0000:41:00.0", "cabc", "0370", node=1, pcie="pci0000:40")
        _, second = devices(Cambricon(), machine(tmp_path, mlu_tools()))
        assert second == XPUDeviceInfo(
            vendor="cambricon",
            model="MLU370-X8",
            uuid="a0b0c0d0-0000-0000-0000-000000000001",
            minor="1",
            resources={"koordinator.sh/gpu-memory": "24576Mi", "koordinator.sh/gpu-core": "100"},
            topology=XPUTopology(socket_id="-1", node_id="1", pcie_id="pci0000:40", bus_id="0000:41:00.0"),
            status=XPUStatus(healthy=True),
        )

    @pytest.mark.parametrize(
        ("health", "message"), [("Warning", "Device is unhealthy, status: Warning"), ("", "")], ids=["warning", "none"]
    )
    def test_a_card_that_is_not_good_is_unhealthy(self, health: str, message: str, tmp_path: Path) -> None:
        first, _ = devices(Cambricon(), machine(tmp_path, {**mlu_tools(), "cnmon info -c 0": mlu_card(0, health)}))
        assert first.status == XPUStatus(False, error_message=message)

    @pytest.mark.parametrize("name", ["UUID", "Domain ID", "Bus num", "Function", "Device  "])
    def test_a_card_of_which_something_is_missing_is_left_out(self, name: str, tmp_path: Path) -> None:
        lines = [line for line in mlu_card(0).splitlines() if name not in line]
        response = found(Cambricon(), machine(tmp_path, {**mlu_tools(), "cnmon info -c 0": "\n".join(lines)}))
        assert [device.minor for device in response.devices] == ["1"]
        text = f"MLU 0 is left out: get mlu device info err, no {name.strip().lower()} field"
        assert response.problems == [Problem(text, ("0",))]

    def test_the_numa_node_is_that_of_sysfs_where_the_tool_does_not_say_it(self, tmp_path: Path) -> None:
        add_pci_device(tmp_path, "0000:40:00.0", "cabc", "0370", node=3, pcie="pci0000:40")
        lines = [line for line in mlu_card(0).splitlines() if "NUMA" not in line]
        first, _ = devices(Cambricon(), machine(tmp_path, {**mlu_tools(), "cnmon info -c 0": "\n".join(lines)}))
        assert first.topology is not None
        assert first.topology.node_id == "3"

    def test_a_pci_device_with_a_letter_in_it_is_no_state_of_the_card(self, tmp_path: Path) -> None:
        output = mlu_card(0).replace("Device                         : 00", "Device                         : 1a")
        first, _ = devices(Cambricon(), machine(tmp_path, {**mlu_tools(), "cnmon info -c 0": output}))
        assert first.topology is not None
        assert (first.topology.bus_id, first.status) == ("0000:40:1a.0", XPUStatus(healthy=True))

    def test_cards_have_the_numbers_that_the_list_gives_them(self, tmp_path: Path) -> None:
        tools = {**mlu_tools(), "cnmon -l": "Card 1: MLU370-X8 (UUID: a1)\n"}
        (only,) = devices(Cambricon(), machine(tmp_path, tools))
        assert (only.minor, only.uuid) == ("1", "a0b0c0d0-0000-0000-0000-000000000001")

    def test_without_a_total_of_memory_nothing_is_known(self, tmp_path: Path) -> None:
        response = found(
            Cambricon(), machine(tmp_path, {**mlu_tools(), "cnmon info": "Physical Memory Usage\nUsed : 1\n"})
        )
        assert response.devices == []
        assert "cnmon info says no total of Physical Memory Usage" in response.problems[0].text

    def test_each_card_has_its_own_memory_where_the_tool_says_it(self, tmp_path: Path) -> None:
        tools = {**mlu_tools(), "cnmon info -c 1": mlu_card(1) + MLU_MEMORY.replace("24576", "49152")}
        first, second = devices(Cambricon(), machine(tmp_path, tools))
        memories = [device.resources["koordinator.sh/gpu-memory"] for device in (first, second)]
        assert memories == ["24576Mi", "49152Mi"]


class TestKunlun:
    def test_two_cards(self, tmp_path: Path) -> None:
        add_pci_device(tmp_path, "0000:1b:00.0", "1d22", "3684", node=-1, pcie="pci0000:17")
        _, second = devices(Kunlun(), machine(tmp_path, xpu_tools()))
        assert second == XPUDeviceInfo(
            vendor="kunlun",
            model="R200",
            uuid="xpu-1",
            minor="1",
            resources={"koordinator.sh/gpu-memory": "32768Mi", "koordinator.sh/gpu-core": "100"},
            topology=XPUTopology(socket_id="-1", node_id="0", pcie_id="pci0000:17", bus_id="0000:1b:00.0"),
            status=XPUStatus(healthy=True),
        )

    def test_a_line_that_cannot_be_read_costs_itself_and_is_named(self, tmp_path: Path) -> None:
        tools = xpu_tools()
        tools["xpu_smi -m"] = "XPU-SMI 5.1\n" + tools["xpu_smi -m"]
        response = found(Kunlun(), machine(tmp_path, tools))
        assert [device.uuid for device in response.devices] == ["xpu-0", "xpu-1"]
        assert response.problems == [Problem("1 row of xpu_smi -m cannot be read, such as 'XPU-SMI 5.1'")]

    def test_devices_have_the_numbers_that_their_lines_have(self, tmp_path: Path) -> None:
        rows = [xpu_row("0000:1b:00.0", 3), xpu_row("0000:1a:00.0", 2)]
        tools = {
            "xpu_smi -m": "\n".join(rows),
            "xpu_smi -m -d /dev/xpu3": rows[0],
            "xpu_smi -m -d /dev/xpu2": rows[1],
        }
        response = devices(Kunlun(), machine(tmp_path, tools))
        places = {device.minor: device.topology and device.topology.bus_id for device in response}
        assert places == {"3": "0000:1b:00.0", "2": "0000:1a:00.0"}

    def test_a_line_that_is_too_short(self, tmp_path: Path) -> None:
        with pytest.raises(DiscoveryError, match="no xpu name field"):
            found(Kunlun(), machine(tmp_path, {"xpu_smi -m": " ".join(["w"] * 21)}))


class TestMetaX:
    def test_two_cards(self, tmp_path: Path) -> None:
        add_pci_device(tmp_path, "0000:01:00.0", "9999", "4000", node=1, pcie="pci0000:00")
        _, second = devices(MetaX(), machine(tmp_path, mx_tools()))
        assert second == XPUDeviceInfo(
            vendor="metax",
            model="MXC500",
            uuid="GPU-0001",
            minor="1",
            resources={"koordinator.sh/gpu-memory": "64Gi", "koordinator.sh/gpu-core": "100"},
            topology=XPUTopology(socket_id="-1", node_id="1", pcie_id="pci0000:00", bus_id="0000:01:00.0"),
            status=XPUStatus(healthy=True),
        )

    def test_the_tenth_is_not_taken_for_the_first(self, tmp_path: Path) -> None:
        uuids = [device.uuid for device in devices(MetaX(), machine(tmp_path, mx_tools(11)))]
        assert uuids == [f"GPU-{index:04}" for index in range(11)]

    def test_a_gpu_that_is_not_available_has_no_uuid(self, tmp_path: Path) -> None:
        """As the tests of others show it; by position, its UUID was ``Sysfs``."""
        tools = mx_tools()
        lines = tools["mx-smi --list"].splitlines()
        lines[1] = "GPU#1 MXC500 0000:01:00.0 Not Available(MetaX Sysfs File Unaccessible)"
        response = found(MetaX(), machine(tmp_path, {**tools, "mx-smi --list": "\n".join(lines)}))
        assert [device.uuid for device in response.devices] == ["GPU-0000"]
        assert [problem.minors for problem in response.problems] == [("1",)]

    def test_memory_with_a_blank_before_its_unit(self, tmp_path: Path) -> None:
        tools = mx_tools()
        tools["mx-smi --show-hwinfo"] = tools["mx-smi --show-hwinfo"].replace("64GB", "64 GB")
        first, _ = devices(MetaX(), machine(tmp_path, tools))
        assert first.resources["koordinator.sh/gpu-memory"] == "64Gi"

    def test_a_counter_that_is_not_available_counts_nothing(self, tmp_path: Path) -> None:
        output = "SRAM Uncorrectable : N/A\nDouble Bit ECC : 0\n"
        first, _ = devices(MetaX(), machine(tmp_path, {**mx_tools(), "mx-smi --count-ecc -i 0": output}))
        assert first.status == XPUStatus(healthy=True)

    def test_errors_of_all_kinds_count(self, tmp_path: Path) -> None:
        first, _ = devices(MetaX(), machine(tmp_path, {**mx_tools(), "mx-smi --count-ecc -i 0": mx_ecc(1, 0, 3)}))
        message = "MX index 0 has 4 SRAM/DRAM Uncorrectable or Double Bit  ECC errors"
        assert first.status == XPUStatus(False, "ECCError", message)

    def test_a_model_that_does_not_count_errors_is_healthy(self, tmp_path: Path) -> None:
        first, _ = devices(MetaX(), machine(tmp_path, {**mx_tools(), "mx-smi --count-ecc -i 0": SILENT}))
        assert first.status == XPUStatus(healthy=True)


@pytest.mark.parametrize(
    ("vendor", "tools"),
    [(Huawei(), npu_tools()), (Cambricon(), mlu_tools()), (Kunlun(), xpu_tools()), (MetaX(), mx_tools())],
    ids=["huawei", "cambricon", "kunlun", "metax"],
)
@pytest.mark.parametrize("garbage", ["", "\n\n", "x", " : ", "GPU# UUID NPU ID DDR Capacity Model Name"])
def test_no_output_breaks_it(vendor: Vendor, tools: dict[str, str], garbage: str, tmp_path: Path) -> None:
    """Whatever one command prints, the response is devices, problems or one error."""
    for command in tools:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        made = machine(folder, {**tools, command: garbage})
        (folder / "dev/davinci0").touch()
        with suppress(DiscoveryError):
            response = found(vendor, made)
            assert response.devices or response.problems


@pytest.mark.parametrize(
    ("vendor", "tools", "name", "model"),
    [
        (Huawei(), npu_tools(), "huawei", "Ascend-910B3"),
        (Cambricon(), mlu_tools(), "cambricon", "MLU370-X8"),
        (Kunlun(), xpu_tools(), "kunlun", "R200"),
        (MetaX(), mx_tools(), "metax", "MXC500"),
    ],
    ids=["huawei", "cambricon", "kunlun", "metax"],
)
def test_the_node_gets_the_labels_that_the_original_sets(
    vendor: Vendor, tools: dict[str, str], name: str, model: str, tmp_path: Path
) -> None:
    """By way of the file, koordlet's Device, and koord-manager."""
    made = machine(tmp_path, tools)
    for number in (0, 1):
        (tmp_path / f"dev/davinci{number}").touch()
    written = decode_devices(encode_devices(devices(vendor, made)))
    report = describe_devices(Inventory(xpus=written), datetime(2026, 1, 1, tzinfo=UTC))
    labels = {key: label for key, label in report.labels.items() if label is not None}
    device = Device(metadata=ObjectMeta(labels=labels), spec=DeviceSpec(devices=list(report.devices)))
    expected = {"node.koordinator.sh/gpu-vendor": name, "node.koordinator.sh/gpu-model": model}
    assert gpu_resources(device, sync_shared=False).labels == expected
