"""``--observe-only``: neither the kernel nor what starts containers sees koordlet; its reports are written."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Final

import pytest

from koordinator.koordlet import features
from koordinator.koordlet.enforce.hooks.hook_server import register
from koordinator.koordlet.enforce.hooks.options import HookOptions, NRIOptions
from koordinator.koordlet.options import EnforcementOptions
from tests.koordlet.enforce.extended_node import is_suppressed
from tests.koordlet.enforce.test_evictions import evicted, pressed_node
from tests.koordlet.node_under_test import NodeUnderTest, play
from tests.koordlet.suppressed_node import SuppressedNode

SWITCHES: Final = ("scan_period_in_seconds", "use_hierarchy")
_SLO: Final = {
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 1, "memoryEvictThresholdPercent": 1},
    "systemStrategy": {"minFreeKbytesFactor": 200},
}


def _contents(folder: Path) -> dict[str, str]:
    """Of all files but koordlet's own."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not {"audit", "forecasts"} & {*path.parts})
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.mark.parametrize("observe_only", [True, False], ids=["observe only", "as it usually runs"])
def test_nothing_is_written_and_nothing_is_served(tmp_path: Path, observe_only: bool) -> None:
    node = NodeUnderTest(tmp_path / "node")
    for name in SWITCHES:
        node.machine.write(f"/sys/kernel/mm/kidled/{name}", "0\n")
    node.machine.write("/proc/sys/vm/min_free_kbytes", "1000\n")
    node.show_slo(_SLO)
    node.gates = (*features.ENFORCING, features.ACCELERATORS, features.COLD_PAGE_COLLECTOR)
    served = tmp_path / "served"
    node.hooks = HookOptions(
        socket=str(served / "koordlet.sock"), registration_folder=str(served), nri=NRIOptions(socket="nri.sock")
    )
    node.enforcement = EnforcementOptions(observe_only=observe_only)
    node.busy_ticks, node.node_cores = 0, 0.0
    before = _contents(node.machine.root)
    written_by_the_test = {str(node.machine.root / name) for name in ("proc/stat", "proc/meminfo")}

    async def run() -> None:
        async with node.running():
            node.kubelet_is_up = True
            await node.clock.advance(130)

    asyncio.run(run())
    after = _contents(node.machine.root)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    changed -= written_by_the_test
    assert {resource for _, resource in node.api.writes} >= {"nodemetrics", "devices"}
    if observe_only:
        assert not changed
        assert not served.exists()
    else:
        # What is to be withheld is there to be done.
        assert any("kidled" in path for path in changed)
        assert (served / "koordlet.json").exists()


def test_proxies_are_not_left_with_the_registration_of_an_earlier_koordlet(tmp_path: Path) -> None:
    node = NodeUnderTest(tmp_path / "node")
    node.hooks = HookOptions(socket=str(tmp_path / "koordlet.sock"), registration_folder=str(tmp_path / "served"))
    register(node.hooks, ())
    node.enforcement = EnforcementOptions(observe_only=True)

    async def story(_: NodeUnderTest) -> None:
        await node.pass_seconds(2)
        assert not (tmp_path / "served/koordlet.json").exists()

    play(node, story)


def test_the_config_map_switches_writing_and_serving_off_and_on(tmp_path: Path) -> None:
    node = SuppressedNode(tmp_path / "node")
    node.follows_configuration = True
    served = tmp_path / "served"
    node.hooks = HookOptions(socket=str(served / "koordlet.sock"), registration_folder=str(served))
    node.machine.write_numa_memory(0, 16 << 20)

    async def story(_: NodeUnderTest) -> None:
        await node.pass_seconds(8)
        assert is_suppressed(node)
        assert (served / "koordlet.json").exists()
        before = node.quota
        node.configure(observe_only="true")
        await node.pass_seconds(2)
        node.pod_cores = 1.0
        await node.pass_seconds(10)
        assert node.quota == before
        assert not (served / "koordlet.json").exists()
        node.configure(observe_only="false")
        await node.pass_seconds(3)
        assert is_suppressed(node)
        assert (served / "koordlet.json").exists()

    play(node, story)


def test_who_was_evicted_in_the_log_alone_is_evicted_when_koordlet_acts_again(tmp_path: Path) -> None:
    node = pressed_node(tmp_path, 49, 48)
    node.follows_configuration = True
    node.configure(observe_only="true")

    async def story(_: NodeUnderTest) -> None:
        await node.pass_seconds(20)
        assert evicted(node) == []
        node.configure()
        await node.pass_seconds(10)
        assert len(evicted(node)) >= 1

    play(node, story)
