"""The command line of koordlet: the Go original's flags, with its defaults but for a loopback address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import koordinator
from koordinator.base.errors import ConfigurationError
from koordinator.base.flag_types import Flag, FlagGroup
from koordinator.base.flags import FlagSet
from koordinator.base.listen_address import NOWHERE, ListenAddress
from koordinator.base.process import nice_flag
from koordinator.base.unused_flags import KLOG_FLAGS, KLOG_SWITCHES, UnusedFlags
from koordinator.koordlet.enforce.hooks.options import HookFlags
from koordinator.koordlet.features import WITHOUT_EFFECT, make_features
from koordinator.koordlet.observe.prediction.options import PredictionFlags
from koordinator.koordlet.options import (
    AuditOptions,
    CollectorOptions,
    EnforcementOptions,
    Folders,
    KubeletOptions,
    Options,
)
from koordinator.node.host import Host

_DESCRIPTION: Final = """\
The agent of one node: measures what the node, its pods and their containers use, and reports it in the NodeMetric of
the node's name, in place of the Go koordlet. It takes the same flags and reads the same environment:
  NODE_NAME    the name of its Node (required)
  agent_mode   hostMode: the machine's files are where they are on the machine itself; otherwise they are where
               koordlet's DaemonSet mounts them (/host-cgroup, /host-sys ...)

Examples:
  NODE_NAME=node-1 agent_mode=hostMode koordlet --kubeconfig=$HOME/.kube/config
      On the node itself, beside its kubelet.
  NODE_NAME=node-1 koordlet --addr=:9316 --collect-res-used-interval=5s
      In a DaemonSet: metrics for all clients, a fifth of the cost, coarser percentiles."""

_ADDRESS: Final = ListenAddress("127.0.0.1", 9316)
_PROFILE_ADDRESS: Final = ListenAddress("127.0.0.1", 9317)
_MEMORY: Final = "memory"
_SQLITE: Final = "sqlite"
_NO_RUNTIME: Final = "no container is stopped behind kubelet's back, which is all that the runtime was asked for"
_CADVISOR_SWITCHES: Final = (
    "allow-dynamic-housekeeping",
    "disable-root-cgroup-stats",
    "docker-only",
    "enable-load-reader",
    "log-cadvisor-usage",
    "storage-driver-secure",
)
_CADVISOR: Final = (
    *_CADVISOR_SWITCHES,
    *("application-metrics-count-limit", "boot-id-file", "container-hints", "containerd", "containerd-namespace"),
    *("containerd-env-metadata-whitelist", "crio-client-timeout", "event-storage-age-limit"),
    *("event-storage-event-limit", "global-housekeeping-interval", "housekeeping-interval", "machine-id-file"),
    *("max-housekeeping-interval", "referenced-reset-interval", "storage-driver-buffer-duration"),
    *("storage-driver-db", "storage-driver-host", "storage-driver-password", "storage-driver-table"),
    *("storage-driver-user", "update-machine-info-interval"),
)
"""Flags of a library that the original is linked with."""
_UNUSED: Final[Mapping[str, str]] = {
    **KLOG_FLAGS,
    **dict.fromkeys(_CADVISOR, "there is no cAdvisor in koordlet"),
    "configmap-name": "koordlet reads no ConfigMap",
    "configmap-namespace": "koordlet reads no ConfigMap",
    "report-interval": "the NodeMetric says how often to report",
    "metric-gc-interval-seconds": "old samples are dropped for newer ones",
    "metric-expire-seconds": "the retention of samples follows the windows of the NodeMetric",
    "tsdb-retention-duration": "the retention of samples follows the windows of the NodeMetric",
    "tsdb-enable-prometheus-metric": "the store is not Prometheus'",
    "tsdb-stripe-size": "the store is not Prometheus'",
    "tsdb-wal-segment-size": "the store is not Prometheus'",
    "tsdb-max-block-chunk-segment-size": "the store is not Prometheus'",
    "tsdb-min-block-duration": "the store is not Prometheus'",
    "tsdb-max-block-duration": "the store is not Prometheus'",
    "tsdb-head-chunks-write-buffer-size": "the store is not Prometheus'",
    "only-evict-by-api": "pods are always evicted through the API server",
    "qos-extension-plugins": "there are no extension plugins",
    "containerd-endpoint": _NO_RUNTIME,
    "docker-endpoint": _NO_RUNTIME,
    "pouch-endpoint": _NO_RUNTIME,
    "default-runtime-type": "a pod's status says of each container which runtime it has",
    "enable-pod-taskids": "the tasks of pods with a group of resctrl (gate Resctrl) are always looked at",
    "runtime-hooks-nri-backoff-steps": "it is tried as long as it takes",
    "collect-sys-metric-outdated-interval": "what the system uses is made of the last readings of everything else",
}
"""Flags of the original that do nothing here, and why."""

_SHORTEST_INTERVAL: Final = timedelta(milliseconds=100)
"""To measure more often would take a core."""

_FOLDERS: Final = {
    "cgroup-root-dir": "Where the machine's cgroup hierarchies are mounted.",
    "sys-root-dir": "The machine's /sys.",
    "sys-fs-root-dir": "The machine's /sys/fs, for resctrl.",
    "proc-root-dir": "The machine's /proc.",
    "var-run-root-dir": "The machine's /var/run, for the sockets of container runtimes.",
    "run-root-dir": "The machine's /run.",
    "var-lib-kubelet-dir": "The machine's /var/lib/kubelet, for kubelet's own state.",
}

_SWITCHES: Final = KLOG_SWITCHES | {
    *_CADVISOR_SWITCHES,
    "only-evict-by-api",
    "enable-pod-taskids",
    "tsdb-enable-prometheus-metric",
}


class _Flags:
    """All flags, with the handles of those that are read."""

    def __init__(self, host: Host) -> None:
        self.set = FlagSet("koordlet", _DESCRIPTION, koordinator.__version__)
        self.features = make_features()
        self._cluster(self.set.group("Cluster"))
        self._kubelet(self.set.group("Kubelet"))
        self._measuring(self.set.group("Measuring"))
        self._measuring_rarely(self.set.group("Measuring more rarely"))
        self.prediction = PredictionFlags(self.set.group("Prediction"))
        self._enforcing(self.set.group("Enforcing quality of service"))
        self.hooks = HookFlags(self.set.group("Hooks of starting pods"), host)
        self._audit(self.set.group("Audit log"))
        self._folders(self.set.group("Folders of the machine"), host)
        serving = self.set.group("Serving and logging")
        self.addr = serving.listen_address(
            "addr", _ADDRESS, "Where /metrics is served: HOST:PORT, :PORT for every address, 0 for nowhere."
        )
        self.pprof = serving.boolean("enable-pprof", False, "Serve profiles of koordlet under /debug/pprof.")
        self.pprof_address = serving.listen_address(
            "pprof-addr", _PROFILE_ADDRESS, "Where to serve them. No authentication."
        )
        self.verbosity = serving.integer("v", 0, "How much is logged, from 0 up.")
        self.nice = nice_flag(serving)
        self.gates = self.set.group("Feature").feature_gates(self.features)
        self.unused = UnusedFlags(self.set, _UNUSED, _SWITCHES)

    def _cluster(self, group: FlagGroup) -> None:
        self.kubeconfig = group.string(
            "kubeconfig",
            "",
            "How to reach the cluster; without it, KUBECONFIG, ~/.kube/config or the service account of the pod.",
            placeholder="file",
        )
        self.qps = group.number("kube-api-qps", 20.0, "Requests a second; 0 or less: no limit.")
        self.burst = group.integer("kube-api-burst", 30, "Requests at once.")
        self.report = group.boolean("enable-node-metric-report", True, "Report the NodeMetric.")

    def _kubelet(self, group: FlagGroup) -> None:
        self.address_type = group.string(
            "kubelet-preferred-address-type", "InternalIP", "Which address of the Node the kubelet is queried at."
        )
        self.sync_interval = group.duration(
            "kubelet-sync-interval", timedelta(seconds=10), "How often the kubelet is queried for its pods."
        )
        self.sync_timeout = group.duration(
            "kubelet-sync-timeout", timedelta(seconds=3), "How long a response of the kubelet may take."
        )
        self.insecure = group.boolean(
            "kubelet-insecure-tls", False, "Query the kubelet's read-only port, over plain HTTP."
        )
        self.read_only_port = group.integer(
            "kubelet-read-only-port", 10255, "Kubelet's read-only port.", minimum=1, maximum=65535
        )
        self.no_configuration = group.boolean(
            "disable-query-kubelet-config", False, "Do not query the kubelet's configuration (/configz)."
        )

    def _measuring(self, group: FlagGroup) -> None:
        self.collect_interval = group.duration(
            "collect-res-used-interval",
            timedelta(seconds=1),
            "How often CPU and memory are measured.",
            minimum=_SHORTEST_INTERVAL,
        )
        self.node_info_interval = group.duration(
            "collect-node-cpu-info-interval",
            timedelta(seconds=60),
            "How often the topology of the CPUs is read.",
            minimum=_SHORTEST_INTERVAL,
        )
        self.topology_interval = group.duration(
            "node-topology-sync-interval",
            timedelta(seconds=3),
            "How often the NodeResourceTopology and the Device are brought up to date; 0 or less: never.",
        )
        self.device_files = group.string(
            "xpu-device-infos-dir",
            "/var/run/koordlet/xpu-device-infos/",
            "Where koord-device-daemon and others say which accelerators there are (gate Accelerators).",
            placeholder="folder",
        )
        self.only_device_files = group.boolean(
            "xpu-enforce-collect-from-device-infos", False, "Report no GPU that is in none of these files."
        )
        self.pod_resources = group.string(
            "pod-resources-proxy-path",
            "/var/run/koordlet/pod-resources",
            "Where kubelet's pod-resources API is served, with devices of koord-scheduler (gate PodResourcesProxy).",
            placeholder="folder",
        )
        self.page_cache = group.boolean(
            "enable-pagecache-collector", False, "Measure memory with page cache, too, for policies that select it."
        )
        self.cache_backend = group.string(
            "metric-cache-backend",
            _MEMORY,
            "Where samples are kept: memory loses them when koordlet starts anew, sqlite keeps a copy in --tsdb-path.",
            allowed=(_MEMORY, _SQLITE),
        )
        self.cache_folder = group.string("tsdb-path", "/metric-data/", "The folder of that copy.", placeholder="folder")
        self.cache_bytes = group.integer(
            "tsdb-max-bytes",
            100 << 20,
            "What all samples may take in memory; where more would be needed, every second one is kept.",
            minimum=1 << 20,
        )

    def _measuring_rarely(self, group: FlagGroup) -> None:
        def interval(name: str, seconds: int, what: str) -> Flag[timedelta]:
            return group.duration(name, timedelta(seconds=seconds), what, minimum=_SHORTEST_INTERVAL)

        self.pressure_interval = interval(
            "psi-collector-interval", 10, "How often the pressure of pods is read (gate PSICollector)."
        )
        self.interference_interval = interval(
            "interference-interval",
            10,
            "How often pods are compared with what is normal for them (gate InterferenceDetection).",
        )
        self.cycles_interval = interval(
            "cpi-collector-interval", 60, "How often cycles and instructions are counted (gate CPICollector)."
        )
        self.cycles_window = interval("collect-cpi-timewindow", 10, "For how long they are counted.")
        self.cold_pages_interval = interval(
            "coldpage-collector-interval", 5, "How often cold pages are read (gate ColdPageCollector)."
        )
        self.resctrl = group.boolean(
            "enable-resctrl-collector", False, "Measure caches and memory bandwidth (gate ResctrlCollector, too)."
        )
        self.resctrl_interval = interval("resctrl-collector-interval", 10, "How often they are measured.")
        self.storage_interval = interval(
            "collect-node-storage-info-interval", 1, "How often disks and mounts are read (gate BlkIOReconcile)."
        )

    def _enforcing(self, group: FlagGroup) -> None:
        def seconds(name: str, default: int, what: str) -> Flag[int]:
            return group.integer(name, default, f"{what}, in seconds.")

        self.reconcile = seconds(
            "reconcile-interval-seconds", 1, "How often CPU burst, memory, disks, caches and sysctls are reconciled"
        )
        self.cpu_suppress = seconds("cpu-suppress-interval-seconds", 1, "How often best-effort pods get a new budget")
        self.cpu_evict = seconds("cpu-evict-interval-seconds", 1, "How often evictions for CPU are decided")
        self.memory_evict = seconds("memory-evict-interval-seconds", 1, "How often evictions for memory are decided")
        self.cpu_cool_down = seconds("cpu-evict-cool-time-seconds", 20, "The pause after an eviction for CPU")
        self.memory_cool_down = seconds("memory-evict-cool-time-seconds", 4, "The pause after an eviction for memory")
        self.reassert = seconds(
            "resource-force-update-seconds", 60, "After how long a file is read again that was written already"
        )
        self.observe_only = group.boolean(
            "observe-only",
            False,
            "Change nothing on this node and answer no hooks: log what would be written and who would be evicted."
            " What is measured is reported as usual.",
        )
        self.cleanup = group.boolean(
            "cleanup",
            False,
            "Take back what koordlet enforces on this node, and end. To remove koordlet, stop it and run this with the"
            " same flags.",
        )

    def _audit(self, group: FlagGroup) -> None:
        self.audit_folder = group.string(
            "audit-log-dir", "/var/log/koordlet", "Where it is written (gate AuditEvents).", placeholder="folder"
        )
        self.audit_verbosity = group.integer(
            "audit-verbose", 3, "How much is written, from 1 up; 0 or less writes everything."
        )
        self.audit_megabytes = group.integer("audit-max-disk-space-mb", 16, "MiB that it may take.", minimum=1)
        self.audit_readers = group.integer(
            "audit-max-concurrent-readers", 4, "How many may page through /events at once.", minimum=1
        )
        self.audit_page = group.integer(
            "audit-max-events-limit", 2048, "How many events one page of /events may have.", minimum=1
        )

    def _folders(self, group: FlagGroup, host: Host) -> None:
        def folder(name: str, default: str) -> Flag[str]:
            return group.string(name, f"{default}/", _FOLDERS[name], placeholder="folder")

        self.cgroup = folder("cgroup-root-dir", host.cgroup)
        self.sys = folder("sys-root-dir", host.sys)
        self.sys_fs = folder("sys-fs-root-dir", host.sys_fs)
        self.proc = folder("proc-root-dir", host.proc)
        self.var_run = folder("var-run-root-dir", host.var_run)
        self.run = folder("run-root-dir", host.run)
        self.var_lib_kubelet = folder("var-lib-kubelet-dir", host.var_lib_kubelet)


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Read the command line. Ends the program for --help, --version and mistakes in flags.

    ConfigurationError if NODE_NAME is not set, or if flags exclude each other.
    """
    machine = Host() if environment.get("agent_mode") == "hostMode" else Host.in_pod()
    flags = _Flags(machine)
    given = flags.set.parse_or_exit(arguments)
    node_name = environment.get("NODE_NAME", "")
    if not node_name:
        raise ConfigurationError("NODE_NAME", "", "set it to the name of this machine's Node")
    if given[flags.cleanup] and given[flags.observe_only]:
        raise ConfigurationError("--cleanup", True, "it writes, which --observe-only excludes")
    return Options(
        node_name=node_name,
        host=Host(
            cgroup=given[flags.cgroup].rstrip("/"),
            sys=given[flags.sys].rstrip("/"),
            sys_fs=given[flags.sys_fs].rstrip("/"),
            proc=given[flags.proc].rstrip("/"),
            var_run=given[flags.var_run].rstrip("/"),
            run=given[flags.run].rstrip("/"),
            var_lib_kubelet=given[flags.var_lib_kubelet].rstrip("/"),
            var_lib_terway=machine.var_lib_terway,
        ),
        listen=given[flags.addr],
        folders=Folders(
            forecasts=Path(given[flags.prediction.folder]),
            audit=Path(given[flags.audit_folder]),
            pod_resources=Path(given[flags.pod_resources]),
            devices=Path(given[flags.device_files]),
            samples=Path(given[flags.cache_folder]) if given[flags.cache_backend] == _SQLITE else None,
        ),
        profiles=given[flags.pprof_address] if given[flags.pprof] else NOWHERE,
        kubeconfig=given[flags.kubeconfig],
        qps=given[flags.qps],
        burst=given[flags.burst],
        kubelet=KubeletOptions(
            address_type=given[flags.address_type],
            sync_interval=given[flags.sync_interval].total_seconds(),
            sync_timeout=given[flags.sync_timeout].total_seconds(),
            insecure=given[flags.insecure],
            read_only_port=given[flags.read_only_port],
            query_configuration=not given[flags.no_configuration],
        ),
        collect_interval=given[flags.collect_interval].total_seconds(),
        node_info_interval=given[flags.node_info_interval].total_seconds(),
        topology_interval=given[flags.topology_interval].total_seconds(),
        only_device_files=given[flags.only_device_files],
        with_page_cache=given[flags.page_cache],
        collectors=CollectorOptions(
            pressure_interval=given[flags.pressure_interval].total_seconds(),
            cycles_interval=given[flags.cycles_interval].total_seconds(),
            cycles_window=given[flags.cycles_window].total_seconds(),
            cold_pages_interval=given[flags.cold_pages_interval].total_seconds(),
            with_resctrl=given[flags.resctrl],
            resctrl_interval=given[flags.resctrl_interval].total_seconds(),
            storage_interval=given[flags.storage_interval].total_seconds(),
            interference_interval=given[flags.interference_interval].total_seconds(),
        ),
        prediction=flags.prediction.options(given),
        hooks=flags.hooks.options(given),
        enforcement=EnforcementOptions(
            reconcile_interval=given[flags.reconcile],
            cpu_suppress_interval=given[flags.cpu_suppress],
            cpu_evict_interval=given[flags.cpu_evict],
            memory_evict_interval=given[flags.memory_evict],
            cpu_evict_cool_down=given[flags.cpu_cool_down],
            memory_evict_cool_down=given[flags.memory_cool_down],
            reassert_interval=given[flags.reassert],
            observe_only=given[flags.observe_only],
        ),
        audit=AuditOptions(
            verbosity=given[flags.audit_verbosity],
            disk_bytes=given[flags.audit_megabytes] << 20,
            readers=given[flags.audit_readers],
            events_per_page=given[flags.audit_page],
        ),
        report=given[flags.report],
        cleanup=given[flags.cleanup],
        cache_bytes=given[flags.cache_bytes],
        nice=given[flags.nice],
        verbosity=given[flags.verbosity],
        features=flags.features,
        remarks=(
            *flags.unused.remarks(given),
            *(
                f"--feature-gates={name}=true has no effect: the feature is not built yet"
                for name, is_on in given[flags.gates].items()
                if is_on and name in WITHOUT_EFFECT
            ),
        ),
    )
