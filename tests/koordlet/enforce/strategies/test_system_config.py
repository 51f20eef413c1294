"""System config: which setting of the kernel gets which value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from koordinator.base.clock import ManualClock
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.strategies.system_config import decide
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.host import Host
from koordinator.node.kernel_file_codec import KernelFileCodec
from koordinator.node.kernel_files import MIN_FREE_KBYTES, SCHED_FEATURES, WATERMARK_SCALE_FACTOR, KernelFile, Target
from koordinator.node.kernel_writer import MachineFiles
from tests.koordlet.enforce.strategies.qos_fixtures import GIB, node, policy, snapshot


def values(**strategy: Any) -> dict[tuple[KernelFile, str], Any]:
    """By file and part, of a node with 64 GiB."""
    decided = decide(snapshot(policy=policy(systemStrategy=strategy), node=node(memory=64 * GIB)))
    assert decided.settings is not None
    return {(each.target.file, each.target.part): each.value for each in decided.settings}


def test_free_memory_is_in_ten_thousandths_of_all_in_kib() -> None:
    assert values(minFreeKbytesFactor=100)[MIN_FREE_KBYTES, ""] == 64 * 1024 * 1024 // 100


def test_what_the_policy_names_is_desired() -> None:
    assert values(watermarkScaleFactor=150)[WATERMARK_SCALE_FACTOR, ""] == 150


def test_switches_of_the_scheduler_are_desired_one_by_one() -> None:
    found = values(schedFeatures={"ID_ABSOLUTE_EXPEL": True, "ID_EXPELLER_SHARE_CORE": False})
    assert found[SCHED_FEATURES, "ID_ABSOLUTE_EXPEL"] == 1
    assert found[SCHED_FEATURES, "ID_EXPELLER_SHARE_CORE"] == 0


def test_without_a_policy_or_a_node_nothing_is_decided() -> None:
    assert decide(snapshot(policy=None, node=node())).settings is None
    assert decide(snapshot(policy=policy(systemStrategy={}), node=None)).settings is None


@pytest.mark.parametrize("path", ["sched/features", "sched_features"])
def test_switches_of_the_scheduler_are_written_where_the_kernel_has_them(tmp_path: Path, path: str) -> None:
    """Linux 5.13 has moved the file."""
    file = tmp_path / "sys/kernel/debug" / path
    file.parent.mkdir(parents=True)
    file.write_text("GENTLE_FAIR_SLEEPERS NO_ID_EXPELLER_SHARE_CORE ID_ABSOLUTE_EXPEL\n")
    host = Host.below(tmp_path)
    layout = CgroupLayout(host.cgroup, CgroupVersion.V2, CgroupDriver.SYSTEMD)
    executor = Executor(MachineFiles(), KernelFileCodec(host, layout, 4096), ManualClock())
    assert executor.present(Target(SCHED_FEATURES, part="ID_ABSOLUTE_EXPEL")) == 1
    desired = DesiredSetting("SystemConfig", Target(SCHED_FEATURES, part="ID_ABSOLUTE_EXPEL"), 0, "a test")
    executor.submit("SystemConfig", (desired,))
    executor.apply()
    assert file.read_text() == "NO_ID_ABSOLUTE_EXPEL\n"
    assert [each.path for each in executor.explanations()] == [str(file)]
