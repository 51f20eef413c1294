"""What a tool prints of one device costs that device alone, and what it prints of all is devices or one error."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.xpu_device_info import XPUDeviceInfo
from koordinator.device_daemon.cambricon import Cambricon
from koordinator.device_daemon.discovery import VENDORS
from koordinator.device_daemon.huawei import Huawei
from koordinator.device_daemon.identity import only_distinct
from koordinator.device_daemon.kunlun import Kunlun
from koordinator.device_daemon.machine import DiscoveryError, Found, Machine, Problem, Vendor
from koordinator.device_daemon.metax import MetaX
from koordinator.node.pci import PciBus
from tests.device_daemon.machines import FakeTools, mlu_tools, mx_tools, npu_tools, xpu_tools
from tests.examples import examples

TOOLS: Mapping[type[Vendor], dict[str, str]] = {
    Huawei: npu_tools(),
    Cambricon: mlu_tools(),
    Kunlun: xpu_tools(),
    MetaX: mx_tools(),
}
_OF_ONE = re.compile(r"(?:-i |-c |/dev/xpu)(\d)$")
"""The number behind a command of one device."""
_WORDS = ("0", "-1", "NA", ":", "GPU#0", "UUID", "NPU ID : 7", "Chip ID : 0", "9" * 30, "\t", "０", "0000:zz:00.0")


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dev")
    for number in (0, 1):
        (folder / f"davinci{number}").touch()
    return folder


@cache
def texts(vendor: type[Vendor]) -> st.SearchStrategy[str]:
    """Anything; and what the tool prints, with lines lost, doubled, moved, cut off and spoilt."""
    lines = sorted({line for output in TOOLS[vendor].values() for line in output.splitlines()})
    spoilt = st.tuples(st.sampled_from(lines), st.integers(0, 80), st.sampled_from(_WORDS)).map(
        lambda parts: f"{parts[0][: parts[1]]}{parts[2]}"
    )
    anything = st.lists(st.sampled_from(lines) | spoilt | st.text(max_size=40), max_size=12).map("\n".join)
    return anything | st.sampled_from(sorted(TOOLS[vendor].values())).flatmap(
        lambda output: st.integers(0, len(output)).map(lambda end: output[:end])
    )


def found(vendor: type[Vendor], dev: Path, outputs: Mapping[str, str]) -> Found:
    return asyncio.run(vendor().devices(Machine(FakeTools(outputs), PciBus(f"{dev}/none"), str(dev))))


def test_all_vendors_are_here() -> None:
    assert {type(vendor) for vendor in VENDORS} == set(TOOLS)


@pytest.mark.parametrize("vendor", list(TOOLS))
@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_what_is_printed_of_one_device_costs_that_device_alone(
    vendor: type[Vendor], dev: Path, data: st.DataObject
) -> None:
    sound = found(vendor, dev, TOOLS[vendor]).devices
    command = data.draw(st.sampled_from([each for each in TOOLS[vendor] if _OF_ONE.search(each)]))
    (number,) = _OF_ONE.findall(command)
    # npu-smi counts the cards of this machine from 1.
    mine, other = sound if int(number) == (1 if vendor is Huawei else 0) else reversed(sound)
    response = found(vendor, dev, {**TOOLS[vendor], command: data.draw(texts(vendor))})
    assert other in response.devices
    left: list[XPUDeviceInfo] = [device for device in response.devices if device != other]
    assert [device.minor for device in left] == [mine.minor][: len(left)]
    assert left or any(mine.minor in problem.minors for problem in response.problems)


@pytest.mark.parametrize("vendor", list(TOOLS))
@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_what_is_printed_of_all_is_devices_or_one_error(vendor: type[Vendor], dev: Path, data: st.DataObject) -> None:
    outputs = {command: data.draw(texts(vendor) | st.just(output)) for command, output in TOOLS[vendor].items()}
    try:
        response = only_distinct(found(vendor, dev, outputs))
    except DiscoveryError as error:
        response = Found(problems=[Problem(str(error))])
    assert response.devices or response.problems
    assert all(problem.text.isprintable() for problem in response.problems)
    numbers = [device.minor for device in response.devices]
    assert len(set(numbers)) == len(numbers)
    assert all(number.isascii() and number.isdigit() for number in numbers)
