"""``--observe-only``: neither the kernel nor what starts containers sees koordlet; its reports are written."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Final

import pytest

from koordinator.koordlet import features
from koordinator.koordlet.enforce.hooks.options import HookOptions, NRIOptions
from koordinator.koordlet.options import EnforcementOptions
from tests.koordlet.node_under_test import NodeUnderTest

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
