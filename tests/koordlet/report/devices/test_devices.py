"""The Device object: what is found in files, through NVML and in sysfs, and that nothing else in it changes."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert, to_document
from koordinator.api.device import Device
from koordinator.api.kinds import DEVICES
from koordinator.api.validation import validate
from koordinator.api.xpu_device_info import XPUDeviceInfo, XPUStatus, decode_devices
from koordinator.koordlet.report.devices.description import DeviceReport, Inventory, describe_devices, device_patch
from koordinator.koordlet.report.devices.xpu_files import XPUFiles
from koordinator.node.nvml import GPU, GPUFailure
from koordinator.node.pci import PciPlacement
from koordinator.node.rdma import RDMADevice
from tests.koordlet.report.devices.reported import NODE, NOW, Bench, device, of_files, xpu

PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
POLICY = "node.koordinator.sh/gpu-partition-policy"


def test_a_device_of_a_file() -> None:
    topology = {"socketID": "-1", "nodeID": "1", "pcieID": "pci0000:c0", "busID": "0000:c1:00.0"}
    report = of_files(xpu(3, topology=topology, status={"healthy": True}))
    assert device(report) == {
        "type": "gpu",
        "id": "npu-0-3",
        "minor": 3,
        "health": True,
        "resources": {
            "koordinator.sh/gpu-memory-ratio": "100",
            "huawei.com/npu-core": "20",
            "koordinator.sh/gpu-memory": "64Gi",
        },
        "topology": {"socketID": -1, "nodeID": 1, "pcieID": "pci0000:c0", "busID": "0000:c1:00.0"},
        "conditions": [
            {
                "type": "Healthy",
                "status": "True",
                "reason": "DeviceHealthy",
                "message": "device is healthy",
                "lastTransitionTime": "2026-03-01T12:00:00Z",
            }
        ],
    }
    assert report.labels["node.koordinator.sh/gpu-vendor"] == "huawei"
    assert report.labels["node.koordinator.sh/gpu-model"] == "Ascend-910B3"


def test_what_cannot_be_used_of_a_file_is_left_out() -> None:
    without_number = {**xpu(1), "minor": "one"}
    odd = xpu(2, resources={"gpu-core": "lots", "gpu-memory": "1"}, topology={"nodeID": "x"})
    report = of_files(without_number, odd)
    assert [entry.id for entry in report.devices] == ["npu-0-2"]
    assert device(report)["resources"] == {"koordinator.sh/gpu-memory-ratio": "100", "koordinator.sh/gpu-memory": "1"}
    assert device(report)["topology"]["nodeID"] == 0
    assert "conditions" not in device(report)


@pytest.mark.parametrize(
    ("code", "reason"),
    [("ChipError", "ChipError"), ("chip error", "chiperror"), ("", "Unknown"), ("79", "Unknown"), ("4 ECC", "ECC")],
)
def test_the_reason_of_an_unhealthy_device_is_one_word(code: str, reason: str) -> None:
    report = of_files(xpu(0, status={"healthy": False, "errCode": code}))
    (condition,) = device(report)["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", reason)
    assert condition["message"] == "device is unhealthy"
    assert device(report)["health"] is False


@given(st.text(), st.text(max_size=100), st.text())
def test_an_api_server_takes_whatever_a_file_says(code: str, model: str, message: str) -> None:
    status = XPUStatus(healthy=False, error_code=code, error_message=message)
    info = XPUDeviceInfo(vendor="v", model=model, uuid="u", minor="0", status=status)
    report = describe_devices(Inventory(xpus=[info]), NOW)
    assert [error for entry in report.devices for error in validate(entry)] == []
    label = report.labels["node.koordinator.sh/gpu-model"]
    assert label is None or (len(label) <= 63 and label.isascii() and label[0].isalnum() and label[-1].isalnum())


def test_partitions_are_the_groups_with_fast_links() -> None:
    def linked(minor: int, *links: dict[str, str], honor: bool = False) -> dict[str, Any]:
        return xpu(minor, topology={"p2pLinks": list(links), "mustHonorPartition": honor})

    pair = {"peerMinor": "1", "type": "HCCS"}
    report = of_files(
        linked(0, pair, {"peerMinor": "1,2,3", "type": "HCCS"}, {"peerMinor": "", "type": "HCCS"}),
        linked(1, {"peerMinor": "0", "type": "HCCS"}, {"type": "HCCS", "peerMinor": "x"}),
    )
    text = report.annotations[PARTITIONS]
    assert text is not None
    assert json.loads(text) == {
        "2": [{"minors": [0, 1], "gpuLinkType": "HCCS", "allocationScore": 1}],
        "4": [{"minors": [0, 1, 2, 3], "gpuLinkType": "HCCS", "allocationScore": 1}],
    }
    assert report.labels[POLICY] == "Prefer"
    assert of_files(linked(0, pair, honor=True)).labels[POLICY] == "Honor"
    assert (of_files(xpu(0)).annotations[PARTITIONS], of_files(xpu(0)).labels[POLICY]) == (None, None)


def gpu(minor: int, model: str = "NVIDIA A100-SXM4-80GB") -> GPU:
    return GPU(minor, f"GPU-{minor}", minor, 80 << 30, model, f"0000:{minor:02x}:00.0")


def test_gpus_of_nvml() -> None:
    placements = {"0000:00:00.0": PciPlacement("0000:00:00.0", 1, "pci0000:00")}
    report = describe_devices(Inventory(gpus=[gpu(1), gpu(0)], placements=placements, driver_version="570.86"), NOW)
    assert device(report) == {
        "type": "gpu",
        "id": "GPU-0",
        "minor": 0,
        "health": True,
        "resources": {
            "koordinator.sh/gpu-core": "100",
            "koordinator.sh/gpu-memory": "80Gi",
            "koordinator.sh/gpu-memory-ratio": "100",
        },
        "topology": {"socketID": -1, "nodeID": 1, "pcieID": "pci0000:00", "busID": "0000:00:00.0"},
    }
    assert "topology" not in device(report, 1)
    assert report.labels == {
        "node.koordinator.sh/gpu-vendor": "nvidia",
        "node.koordinator.sh/gpu-model": "A100-SXM4-80GB",
        "node.koordinator.sh/gpu-driver-version": "570.86",
    }
    assert report.annotations == {}


def test_a_gpu_with_a_critical_error_is_unhealthy_and_says_why() -> None:
    failures = {gpu(1): GPUFailure("Xid79", "Xid error detected on device, error code: 79")}
    healthy, unhealthy = describe_devices(Inventory(gpus=[gpu(0), gpu(1)], failures=failures), NOW).devices
    assert (healthy.health, list(healthy.conditions)) == (True, [])
    (condition,) = unhealthy.conditions
    assert (unhealthy.health, condition.type, condition.status) == (False, "Healthy", "False")
    assert (condition.reason, condition.message) == ("Xid79", "Xid error detected on device, error code: 79")


def test_gpus_of_two_models_have_no_model() -> None:
    labels = describe_devices(Inventory(gpus=[gpu(0), gpu(1, "NVIDIA L40")], driver_version="570.86"), NOW).labels
    assert labels["node.koordinator.sh/gpu-model"] is None
    assert labels["node.koordinator.sh/gpu-driver-version"] is None


def test_network_cards_come_after_gpus() -> None:
    placement = PciPlacement("0000:81:00.0", 1, "pci0000:80")
    card = RDMADevice(0, True, placement, ("0000:81:00.3", "0000:81:00.2"))
    report = describe_devices(Inventory(gpus=[gpu(0)], rdma=[card]), NOW)
    assert [entry.type for entry in report.devices] == ["gpu", "rdma"]
    assert device(report, 1)["resources"] == {"koordinator.sh/rdma": "100"}
    assert device(report, 1)["vfGroups"] == [
        {"vfs": [{"minor": -1, "busID": "0000:81:00.2"}, {"minor": -1, "busID": "0000:81:00.3"}]}
    ]


def as_object(report: DeviceReport, **metadata: Any) -> Device:
    return convert({"metadata": {"name": NODE, **metadata}, "spec": {"devices": to_document(report.devices)}}, Device)


def later(report_of: dict[str, Any]) -> DeviceReport:
    infos = decode_devices(json.dumps([report_of]).encode())
    return describe_devices(Inventory(xpus=infos), NOW + timedelta(hours=1))


def test_a_condition_that_holds_as_before_keeps_its_time() -> None:
    healthy = xpu(0, status={"healthy": True})
    labels = {"node.koordinator.sh/gpu-vendor": "huawei", "node.koordinator.sh/gpu-model": "Ascend-910B3"}
    assert device_patch(as_object(of_files(healthy), labels=labels), later(healthy)) is None


def test_a_device_that_fails_is_written_with_the_time_of_that() -> None:
    present = as_object(of_files(xpu(0, status={"healthy": True})))
    patch = device_patch(present, later(xpu(0, status={"healthy": False})))
    assert patch is not None
    (condition,) = patch["spec"]["devices"][0]["conditions"]
    assert condition["lastTransitionTime"] == "2026-03-01T13:00:00Z"


def test_partitions_that_an_administrator_wrote_for_gpus_stay() -> None:
    report = describe_devices(Inventory(gpus=[gpu(0)]), NOW)
    present = as_object(report, annotations={PARTITIONS: "{}"}, labels={POLICY: "Honor", "theirs": "x"})
    patch = device_patch(present, report)
    assert patch == {
        "metadata": {
            "labels": {
                "node.koordinator.sh/gpu-vendor": "nvidia",
                "node.koordinator.sh/gpu-model": "A100-SXM4-80GB",
            }
        }
    }


def test_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(json.dumps([xpu(1)]))
    (tmp_path / "a.json").write_text(json.dumps([xpu(0)]))
    (tmp_path / ".new").write_text("[")
    (tmp_path / "ic-device-tmp").mkdir()
    assert [info.minor for info in XPUFiles(f"{tmp_path}/").read()] == ["0", "1"]


def test_a_file_that_breaks_counts_once_more_and_costs_the_others_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = XPUFiles(str(tmp_path))
    (tmp_path / "a.json").write_text(json.dumps([xpu(0)]))
    (tmp_path / "b.json").write_text(json.dumps([xpu(1)]))
    files.read()
    (tmp_path / "a.json").write_text('[{"vendor": 1}]')
    with caplog.at_level(logging.WARNING):
        counts = [len(files.read()) for _ in range(3)]
    assert counts == [2, 1, 1]
    assert caplog.text.count("a.json does not say which devices there are: Expected `str`") == 1


def test_without_the_folder_there_are_no_devices(tmp_path: Path) -> None:
    assert XPUFiles(str(tmp_path / "absent")).read() == []


async def story(bench: Bench) -> None:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(bench.states.run())
        await bench.clock.advance(1)
        await bench.rounds(3)
        bench.write(xpu(0, status={"healthy": True}))
        await bench.rounds(3)
        mine = bench.document
        mine["metadata"]["annotations"] = {"theirs": "kept"}
        bench.api.put(DEVICES, mine)
        bench.write(xpu(0, status={"healthy": True}), xpu(1))
        await bench.rounds(3)
        task.cancel()


def test_the_object_is_made_and_then_written_only_when_something_has_changed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    asyncio.run(story(bench))
    assert bench.api.writes == {("create", "devices"): 1, ("patch", "devices"): 2}
    document = bench.document
    assert [entry["minor"] for entry in document["spec"]["devices"]] == [0, 1]
    assert document["metadata"]["annotations"]["theirs"] == "kept"
    assert document["metadata"]["ownerReferences"][0]["kind"] == "Node"
