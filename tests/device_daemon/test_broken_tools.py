"""Every way in which a tool fails costs its own vendor alone, and is named once."""

from __future__ import annotations

import asyncio
import logging
import os
import select
from collections.abc import Mapping
from pathlib import Path

import pytest

from koordinator.device_daemon.discovery import Discovery, Inventory
from koordinator.device_daemon.machine import HostTools, Machine, ToolError
from koordinator.node.pci import PciBus
from tests.device_daemon.machines import add_pci_device, mlu_tools, mx_tools, npu_tools, xpu_tools
from tests.real_world.device_tools import BROKEN_TOOLS, BrokenTool
from tests.waiting import PATIENCE

VENDORS: Mapping[str, tuple[str, str, dict[str, str]]] = {
    "huawei": ("npu-smi", "19e5", npu_tools()),
    "cambricon": ("cnmon", "cabc", mlu_tools()),
    "kunlun": ("xpu_smi", "1d22", xpu_tools()),
    "metax": ("mx-smi", "9999", mx_tools()),
}
PLACES = ("0000:c1:00.0", "0000:40:00.0", "0000:1a:00.0", "0000:01:00.0")


def install(root: Path, vendor: str, broken: BrokenTool | None = None) -> None:
    """The tool of the vendor, as a shell script over files with its outputs."""
    tool, _, outputs = VENDORS[vendor]
    folder = root / f"{tool}.outputs"
    folder.mkdir(exist_ok=True)
    cases = []
    for number, (command, text) in enumerate(outputs.items()):
        content = text.encode() if broken is None else broken.output(text.encode())
        (folder / str(number)).write_bytes(content)
        cases.append(f"'{command.partition(' ')[2]}') cat {folder}/{number};;")
    end = "exec sleep 1000" if broken is not None and broken.hangs else f"exit {broken.status if broken else 0}"
    script = root / "bin" / tool
    script.write_text(f'#!/bin/sh\ncase "$*" in\n{chr(10).join(cases)}\n*) exit 3;;\nesac\n{end}\n')
    script.chmod(0o755)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with devices of all vendors, whose tools are real programs."""
    for place, (_, pci_vendor, _) in zip(PLACES, VENDORS.values(), strict=True):
        add_pci_device(tmp_path, place, pci_vendor, "0001")
    for name in ("dev", "bin"):
        (tmp_path / name).mkdir()
    for number in (0, 1):
        (tmp_path / f"dev/davinci{number}").touch()
    for vendor in VENDORS:
        install(tmp_path, vendor)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path


class ImpatientTools:
    """Waits for one tool not as long as for the others, which must not run out of time on a machine that is busy."""

    def __init__(self, hanging: str) -> None:
        self._hanging = hanging

    async def run(self, tool: str, *arguments: str) -> str:
        return await HostTools("", 0.2 if tool == self._hanging else 30.0).run(tool, *arguments)


def discovery(root: Path, vendor: str, broken: BrokenTool) -> Discovery:
    tools = ImpatientTools(VENDORS[vendor][0] if broken.hangs else "")
    return Discovery(Machine(tools, PciBus(f"{root}/sys/bus/pci/devices"), f"{root}/dev"))


def per_vendor(inventory: Inventory) -> dict[str, int]:
    return {vendor: sum(device.vendor == vendor for device in inventory.devices) for vendor in VENDORS}


@pytest.mark.parametrize("broken", BROKEN_TOOLS, ids=lambda broken: broken.name)
def test_a_broken_tool_costs_its_own_vendor_alone(
    broken: BrokenTool, host: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each vendor's in turn. The others have all their devices."""
    for vendor in VENDORS:
        install(host, vendor, broken)
        caplog.clear()
        looking = discovery(host, vendor, broken)
        with caplog.at_level(logging.WARNING):
            first, again = (asyncio.run(looking.discover()) for _ in range(2))
        sound = {other: 2 for other in VENDORS if other != vendor}
        assert {other: count for other, count in per_vendor(first).items() if other != vendor} == sound
        assert per_vendor(again) == per_vendor(first)
        assert per_vendor(first)[vendor] < 2
        messages = [record.getMessage() for record in caplog.records]
        assert messages
        assert len(messages) == len(set(messages))
        tool = VENDORS[vendor][0]
        names = (tool, vendor, "baidu" if vendor == "kunlun" else vendor)
        assert all(any(name in message for name in names) for message in messages)
        install(host, vendor)


@pytest.mark.parametrize("broken", BROKEN_TOOLS, ids=lambda broken: broken.name)
def test_a_tool_that_breaks_later_takes_no_device_away(broken: BrokenTool, host: Path) -> None:
    (sound, *_) = BROKEN_TOOLS
    looking = discovery(host, "huawei", sound)
    before = asyncio.run(looking.discover())
    assert per_vendor(before)["huawei"] == 2
    looking.machine = discovery(host, "huawei", broken).machine
    install(host, "huawei", broken)
    after = asyncio.run(looking.discover())
    assert [(device.uuid, device.minor) for device in after.devices] == [
        (device.uuid, device.minor) for device in before.devices
    ]


def test_tools_print_their_names_in_english(host: Path) -> None:
    (host / "bin/npu-smi").write_text('#!/bin/sh\necho "$LC_ALL"\n')
    assert asyncio.run(HostTools("").run("npu-smi")) == "C\n"


def test_too_much_output_is_an_error_that_is_the_same_each_time(host: Path) -> None:
    (huge,) = [broken for broken in BROKEN_TOOLS if broken.name == "huge"]
    install(host, "metax", huge)
    with pytest.raises(ToolError, match=r"^mx-smi --list: printed more than 4194304 bytes$"):
        asyncio.run(HostTools("").run("mx-smi", "--list"))


def test_a_tool_that_ends_and_leaves_a_program_behind_does_not_hold_the_daemon_up(host: Path) -> None:
    """It has the pipe open: nobody knows whether more comes."""
    script = host / "bin/npu-smi"
    script.write_text('#!/bin/sh\nsleep 1000 &\necho "$!" >"$0.left"\n')
    with pytest.raises(ToolError, match=r"no response within 0\.2 s"):
        asyncio.run(ImpatientTools("npu-smi").run("npu-smi"))
    left = int((host / "bin/npu-smi.left").read_text())
    try:
        descriptor = os.pidfd_open(left)
    except ProcessLookupError:
        return
    with os.fdopen(descriptor, "rb") as handle:
        ended, _, _ = select.select([handle], [], [], PATIENCE)
    assert ended
