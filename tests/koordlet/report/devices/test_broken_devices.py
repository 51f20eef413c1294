"""Devices that cannot be, in the files of others and in the Device object: each costs itself alone, and is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.kinds import DEVICES
from koordinator.api.validation import validate
from koordinator.api.xpu_device_info import XPUDeviceInfo
from koordinator.koordlet.report.devices.description import Inventory, describe_devices
from tests.koordlet.report.devices.reported import NODE, NOW, Bench, device, of_files, xpu
from tests.real_world.broken_objects import BrokenObject, broken_objects


@pytest.mark.parametrize(
    ("minor", "named"),
    [
        ("one", "'one'"),
        ("-1", "'-1'"),
        ("2147483648", "'2147483648'"),
        ("9" * 5000, "'99999"),
        ("", "''"),
        ("١", "'١'"),
    ],
)
def test_a_device_whose_number_cannot_be_is_left_out_and_named(minor: str, named: str) -> None:
    report = of_files({**xpu(0), "minor": minor}, xpu(1))
    assert [entry.id for entry in report.devices] == ["npu-0-1"]
    (problem,) = report.problems
    assert problem.startswith(f"npu-0-0 is left out: its minor number {named}")
    assert len(problem) < 200


@pytest.mark.parametrize("amount", ["-100", "1e99999", "9223372036854775808", "lots", ""])
def test_an_amount_that_cannot_be_costs_itself_and_is_named(amount: str) -> None:
    report = of_files(xpu(0, resources={"gpu-core": amount, "gpu-memory": "1Gi"}))
    assert device(report)["resources"] == {
        "koordinator.sh/gpu-memory-ratio": "100",
        "koordinator.sh/gpu-memory": "1Gi",
    }
    (problem,) = report.problems
    assert problem.startswith(f"npu-0-0 has no gpu-core: {amount[:5]!r}"[:-1])


@pytest.mark.parametrize(
    ("second", "what"),
    [
        ({**xpu(0), "vendor": "cambricon", "uuid": "mlu"}, "mlu is left out: npu-0-0 has its minor number, 0"),
        ({**xpu(1), "uuid": "npu-0-0"}, "npu-0-0 is left out: another device has its UUID, and the minor number 0"),
    ],
)
def test_of_two_devices_with_one_identity_the_first_stays(second: dict[str, Any], what: str) -> None:
    """A pod is given devices by their numbers. The first is that whose vendor the labels name."""
    report = of_files(xpu(0), second)
    assert [(entry.id, entry.minor) for entry in report.devices] == [("npu-0-0", 0)]
    assert report.problems == (what,)


def test_what_is_wrong_with_a_device_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(tmp_path)
    bench.write(xpu(0), {**xpu(0), "uuid": "other"})
    bench.run()
    assert caplog.text.count("other is left out: npu-0-0 has its minor number, 0") == 1
    assert [entry["id"] for entry in bench.document["spec"]["devices"]] == ["npu-0-0"]


@pytest.mark.parametrize("broken", broken_objects(DEVICES), ids=lambda broken: broken.name)
def test_a_device_object_that_somebody_broke_is_written_anew(broken: BrokenObject, tmp_path: Path) -> None:
    """However it was broken, the pods of the node get what the node has."""
    bench = Bench(tmp_path)
    present = broken.copy()
    present["metadata"]["name"] = NODE
    bench.api.put(DEVICES, present)
    bench.write(xpu(0))
    bench.run()
    (written,) = bench.document["spec"]["devices"]
    assert (written["id"], written["minor"]) == ("npu-0-0", 0)
    assert written["resources"]["koordinator.sh/gpu-memory"] == "64Gi"


@pytest.mark.parametrize("broken", broken_objects(DEVICES), ids=lambda broken: broken.name)
def test_a_file_that_says_what_a_broken_device_object_says_costs_that_device_alone(
    broken: BrokenObject, tmp_path: Path
) -> None:
    (entry,) = broken.copy()["spec"]["devices"]
    bad = {**xpu(1), "uuid": "bad", "minor": str(entry["minor"]), "resources": entry["resources"]}
    report = of_files(xpu(5), {**bad, "minor": bad["minor"] if entry["minor"] else "1"})
    assert "npu-0-5" in [each.id for each in report.devices]
    assert [error for each in report.devices for error in validate(each)] == []
    assert all(amount.value >= 0 for each in report.devices for amount in each.resources.values())


@given(st.lists(st.tuples(st.sampled_from("0123"), st.sampled_from("abcd")), max_size=8))
def test_no_two_devices_have_one_identity(entries: list[tuple[str, str]]) -> None:
    infos = [XPUDeviceInfo(vendor="v", model="m", uuid=uuid, minor=minor) for minor, uuid in entries]
    report = describe_devices(Inventory(xpus=infos), NOW)
    assert len({entry.minor for entry in report.devices}) == len(report.devices)
    assert len({entry.id for entry in report.devices}) == len(report.devices)
    assert len(report.problems) == len(entries) - len(report.devices)
