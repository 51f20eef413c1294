"""A node under test on which a best-effort pod takes what it can get, beside an online pod and the system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.koordlet.node_under_test import GIB, MEMORY_STAT, NodeUnderTest

CLASS = "kubepods/besteffort"
JOB = "0000-job"
JOB_FOLDERS = (CLASS, f"{CLASS}/pod{JOB}", f"{CLASS}/pod{JOB}/c1")
SYSTEM_CORES = 0.5
BY_QUOTA: dict[str, Any] = {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 65}
NO_QUOTA = -1


class SuppressedNode(NodeUnderTest):
    """Of 4 CPUs, 65 % are 2.6; the online pod's are ``pod_cores``."""

    def __init__(self, root: Path) -> None:
        self.job_cores = 4.0
        """What the best-effort pod would use."""
        self.hides_stat = False
        """Whether the usage of the machine cannot be read."""
        self._job_micros = 0
        super().__init__(root)
        self.add_capacity()
        self.pods.append(_job())
        for folder in JOB_FOLDERS:
            self.machine.write(f"/sys/fs/cgroup/{folder}/cpu.max", "max 100000\n")
        self.suppress(**BY_QUOTA)

    def suppress(self, **settings: Any) -> None:
        """The NodeSLO says so from now on."""
        self.show_slo({"resourceUsedThresholdWithBE": settings})

    @property
    def quota(self) -> int:
        """Of best-effort pods, microseconds."""
        text = (self.machine.root / "sys/fs/cgroup" / CLASS / "cpu.max").read_text().split()[0]
        return NO_QUOTA if text == "max" else int(text)

    @property
    def wanted(self) -> int:
        """The quota that the load requests."""
        return round((2.6 - self.pod_cores - SYSTEM_CORES) * 100_000)

    def write_machine_files(self) -> None:
        super().write_machine_files()
        if self.hides_stat:
            (self.machine.root / "proc/stat").unlink()

    def write_files(self) -> None:
        super().write_files()
        for folder in JOB_FOLDERS:
            stat = f"usage_usec {self._job_micros}\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"
            self.machine.write(f"/sys/fs/cgroup/{folder}/cpu.stat", stat)
            self.machine.write(f"/sys/fs/cgroup/{folder}/memory.stat", MEMORY_STAT.format(GIB, 4096))

    async def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            used = min(self.job_cores, 4.0 if self.quota == NO_QUOTA else self.quota / 100_000)
            self._job_micros += round(used * 1_000_000)
            self.node_cores = SYSTEM_CORES + self.pod_cores + used
            await super().pass_seconds(1)


def _job() -> dict[str, Any]:
    return {
        "metadata": {"name": "job", "namespace": "jobs", "uid": JOB, "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {"priority": 5500, "containers": [{"name": "c", "image": "i"}]},
        "status": {
            "phase": "Running",
            "qosClass": "BestEffort",
            "containerStatuses": [{"name": "c", "containerID": "containerd://c1"}],
        },
    }
