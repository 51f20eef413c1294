"""The cgroup of one pod, as kernels with version 1 and version 2 show it."""

from __future__ import annotations

from pathlib import Path

from koordinator.node.cgroup_layout import CgroupVersion
from tests.node.machine import FakeMachine

POD = "kubepods.slice/pod.slice"
V1_STAT = """\
cache 1
rss 2
total_cache 8192
total_rss 4096
total_inactive_anon 100
total_active_anon 200
total_inactive_file 1000
total_active_file 2000
total_unevictable 7
"""
V2_STAT = """\
anon 4096
file 8192
kernel 100
file_mapped 5
inactive_anon 100
active_anon 200
inactive_file 1000
active_file 2000
unevictable 7
"""
V1_FILES = {
    "cpuacct/{}/cpuacct.usage": "123456789\n",
    "cpu/{}/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 5000\n",
    "cpu/{}/cpu.cfs_quota_us": "-1\n",
    "cpu/{}/cpu.cfs_period_us": "100000\n",
    "cpu/{}/cpu.shares": "1024\n",
    "cpuset/{}/cpuset.cpus": "0-2,4\n",
    "cpu/{}/tasks": "3\n7\n",
    "cpu/{}/cgroup.procs": "3\n",
    "memory/{}/memory.usage_in_bytes": "65536\n",
    "memory/{}/memory.limit_in_bytes": "9223372036854771712\n",
    "memory/{}/memory.stat": V1_STAT,
    "memory/{}/memory.numa_stat": (
        "total=0 N0=0 N1=0\nhierarchical_total=9 N0=5 N1=4\nhierarchical_file=4 N0=2 N1=2\n"
        "hierarchical_anon=4 N0=2 N1=2\nhierarchical_unevictable=1 N0=1 N1=0\n"
    ),
    "cpuacct/{}/cpu.pressure": "some avg10=1.50 avg60=0.10 avg300=0.00 total=9\n",
    "blkio/{}/blkio.throttle.io_service_bytes": "8:0 Read 4096\n8:0 Write 512\n8:0 Total 4608\nTotal 4608\n",
    "net_cls/{}/net_cls.classid": "1048577\n",
}
V2_FILES = {
    "{}/cpu.stat": "usage_usec 123456\nuser_usec 1\nnr_periods 10\nnr_throttled 4\nthrottled_usec 5\n",
    "{}/cpu.max": "max 100000\n",
    "{}/cpu.weight": "39\n",
    "{}/cpuset.cpus.effective": "0-2,4\n",
    "{}/cgroup.threads": "3\n7\n",
    "{}/cgroup.procs": "3\n",
    "{}/memory.current": "65536\n",
    "{}/memory.max": "max\n",
    "{}/memory.stat": V2_STAT,
    "{}/memory.numa_stat": "anon N0=8192 N1=8192\nfile N0=9 N1=9\nunevictable N0=4096 N1=0\n",
    "{}/io.stat": "8:0 rbytes=4096 wbytes=256 rios=1 wios=1 dbytes=7 dios=0\n8:16 rbytes=0 wbytes=256 rios=0 wios=1\n",
    "{}/cpu.pressure": (
        "some avg10=1.50 avg60=0.10 avg300=0.00 total=9\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=2\n"
    ),
}


class FakeCgroup:
    """The cgroup of one pod with every file."""

    def __init__(self, root: Path, version: CgroupVersion) -> None:
        self.machine = FakeMachine(root)
        self.layout = self.machine.layout(version)
        self.files = V1_FILES if version is CgroupVersion.V1 else V2_FILES
        self._stat = "memory/{}/memory.stat" if version is CgroupVersion.V1 else "{}/memory.stat"
        self._prefix = "total_" if version is CgroupVersion.V1 else ""
        for path, content in self.files.items():
            self.write(path, content)

    def write(self, path: str, content: str) -> None:
        """``path`` below the root of all cgroups, with {} for the pod's folder."""
        self.machine.write(f"/sys/fs/cgroup/{path.format(POD)}", content)

    def replace_memory(self, kind: str, old: int, new: int) -> None:
        """Change one line of memory.stat; its total on version 1."""
        line = f"{self._prefix}{kind} {{}}\n"
        content = self.files[self._stat]
        assert line.format(old) in content
        self.write(self._stat, content.replace(line.format(old), line.format(new)))
