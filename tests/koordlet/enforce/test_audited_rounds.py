"""Writes of the executor are in the audit log; what would only have been written is not."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.koordlet.agent_metrics import AgentMetrics
from koordinator.koordlet.enforce.decision_report import account_for_writes
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.options import AuditOptions
from koordinator.koordlet.report.audit.log import AuditLog
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.host import Host
from koordinator.node.kernel_file_codec import KernelFileCodec
from koordinator.node.kernel_files import CPU_SHARES, Target
from koordinator.node.kernel_writer import MachineFiles


def audited(folder: Path, *, observe_only: bool) -> str:
    """The log after one setting for a pod's shares, on files below ``folder``."""
    clock = ManualClock()
    host = Host.below(folder)
    layout = CgroupLayout(host.cgroup, CgroupVersion.V1, CgroupDriver.CGROUPFS)
    shares = Path(host.cgroup) / "cpu/kubepods/pod1/cpu.shares"
    shares.parent.mkdir(parents=True)
    shares.write_text("2\n")
    log = AuditLog(folder / "audit", AuditOptions(verbosity=9, disk_bytes=1 << 20), clock, UTC)
    account = account_for_writes(AgentMetrics(Metrics(), "n"), log)
    files = MachineFiles()
    codec = KernelFileCodec(host, layout, 4096)
    executor = Executor(files, codec, clock, reassert_seconds=60.0, observe_only=observe_only, on_applied=account)
    executor.submit("CPUBurst", (DesiredSetting("CPUBurst", Target(CPU_SHARES, "kubepods/pod1"), 1024, "a test"),))
    executor.apply()
    log.close()
    assert shares.read_text().strip() == ("2" if observe_only else "1024")
    return "".join(path.read_text() for path in (folder / "audit").glob("audit*.log"))


@pytest.mark.parametrize("observe_only", [False, True])
def test_what_is_written_is_recorded(tmp_path: Path, observe_only: bool) -> None:
    assert ("cpu.shares to 1024 (a test)" in audited(tmp_path, observe_only=observe_only)) is not observe_only
