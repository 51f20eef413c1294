"""The command line of koordlet: the Go original's flags, with its defaults but for a loopback address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import koordinator
from koordinator.base.errors import ConfigurationError
from koordinator.base.feature_gates import FeatureGates
from koordinator.base.flag_types import Flag, FlagGroup
from koordinator.base.flags import FlagSet
from koordinator.base.listen_address import ListenAddress
from koordinator.base.unused_flags import LOG_FLAGS, LOG_SWITCHES, TO_STDERR, UnusedFlags
from koordinator.koordlet.features import WITHOUT_EFFECT, make_features
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
      In a DaemonSet: metrics for whoever asks, a fifth of the cost, coarser percentiles."""

_ADDRESS: Final = ListenAddress("127.0.0.1", 9316)
_NOT_BUILT: Final = "what it configures is not built yet"
_UNUSED: Final[Mapping[str, str]] = {
    **LOG_FLAGS,
    "stderrthreshold": TO_STDERR,
    "one-output": TO_STDERR,
    "log-dir": "log lines go to stderr, never to files",
    "log-file": "log lines go to stderr, never to files",
    "log-file-max-size": "log lines go to stderr, never to files",
    "log-backtrace-at": "errors that nobody foresaw carry their stack trace always",
    "add-dir-header": "log lines keep their header",
    "skip-headers": "log lines keep their header",
    "skip-log-headers": "log lines keep their header",
    "configmap-name": "koordlet reads no ConfigMap",
    "configmap-namespace": "koordlet reads no ConfigMap",
    "report-interval": "the NodeMetric says how often to report",
    "metric-gc-interval-seconds": "samples make room for newer ones by themselves",
    "metric-expire-seconds": "the retention of samples follows the windows of the NodeMetric",
    "tsdb-path": "samples are kept in memory",
    "tsdb-retention-duration": "the retention of samples follows the windows of the NodeMetric",
    "tsdb-enable-prometheus-metric": "the store is not Prometheus'",
    "tsdb-stripe-size": "the store is not Prometheus'",
    "tsdb-wal-segment-size": "the store is not Prometheus'",
    "tsdb-max-block-chunk-segment-size": "the store is not Prometheus'",
    "tsdb-min-block-duration": "the store is not Prometheus'",
    "tsdb-max-block-duration": "the store is not Prometheus'",
    "tsdb-head-chunks-write-buffer-size": "the store is not Prometheus'",
    "enable-pprof": _NOT_BUILT,
    "pprof-addr": _NOT_BUILT,
    "containerd-endpoint": _NOT_BUILT,
    "docker-endpoint": _NOT_BUILT,
    "pouch-endpoint": _NOT_BUILT,
    "default-runtime-type": _NOT_BUILT,
    "hami-core-library-directory-path": _NOT_BUILT,
    "pod-resources-proxy-path": _NOT_BUILT,
    "xpu-device-infos-dir": _NOT_BUILT,
    "xpu-enforce-collect-from-device-infos": _NOT_BUILT,
    "node-topology-sync-interval": _NOT_BUILT,
    "enable-pod-taskids": _NOT_BUILT,
    "collect-sys-metric-outdated-interval": _NOT_BUILT,
    "collect-node-storage-info-interval": _NOT_BUILT,
    "cpi-collector-interval": _NOT_BUILT,
    "collect-cpi-timewindow": _NOT_BUILT,
    "psi-collector-interval": _NOT_BUILT,
    "coldpage-collector-interval": _NOT_BUILT,
    "enable-resctrl-collector": _NOT_BUILT,
    "resctrl-collector-interval": _NOT_BUILT,
    "prediction-checkpoint-filepath": _NOT_BUILT,
    "prediction-cold-start-duration": _NOT_BUILT,
    "prediction-safety-margin-percent": _NOT_BUILT,
    "prediction-memory-histogram-decay-halflife": _NOT_BUILT,
    "prediction-cpu-histogram-decay-halflife": _NOT_BUILT,
    "prediction-training-interval": _NOT_BUILT,
    "prediction-model-expiration-duration": _NOT_BUILT,
    "prediction-model-checkpoint-interval": _NOT_BUILT,
    "prediction-model-checkpoint-max-per-step": _NOT_BUILT,
    "audit-log-dir": _NOT_BUILT,
    "audit-verbose": _NOT_BUILT,
    "audit-max-disk-space-mb": _NOT_BUILT,
    "audit-max-concurrent-readers": _NOT_BUILT,
    "audit-max-events-limit": _NOT_BUILT,
}
"""Flags of the original that do nothing here, and why."""

_FOLDERS: Final = {
    "cgroup-root-dir": "Where the machine's cgroup hierarchies are mounted.",
    "sys-root-dir": "The machine's /sys.",
    "sys-fs-root-dir": "The machine's /sys/fs, for resctrl.",
    "proc-root-dir": "The machine's /proc.",
    "var-run-root-dir": "The machine's /var/run, for the sockets of container runtimes.",
    "run-root-dir": "The machine's /run.",
    "var-lib-kubelet-dir": "The machine's /var/lib/kubelet, for kubelet's own state.",
}

_SWITCHES: Final = LOG_SWITCHES | {
    "one-output",
    "add-dir-header",
    "skip-headers",
    "skip-log-headers",
    "enable-pprof",
    "enable-pod-taskids",
    "enable-resctrl-collector",
    "tsdb-enable-prometheus-metric",
    "xpu-enforce-collect-from-device-infos",
}


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """How kubelet is asked. Intervals are in seconds; one that is not above 0 never asks."""

    address_type: str = "InternalIP"
    sync_interval: float = 10.0
    sync_timeout: float = 3.0
    insecure: bool = False
    """Plain HTTP on the read-only port."""
    read_only_port: int = 10255
    query_configuration: bool = True


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line and the environment say. Intervals are in seconds."""

    node_name: str
    host: Host
    listen: ListenAddress
    kubeconfig: str = ""
    qps: float = 20.0
    burst: int = 30
    kubelet: KubeletOptions = field(default_factory=KubeletOptions)
    collect_interval: float = 1.0
    node_info_interval: float = 60.0
    with_page_cache: bool = False
    report: bool = True
    cache_bytes: int = 100 << 20
    verbosity: int = 0
    features: FeatureGates = field(default_factory=make_features)
    remarks: tuple[str, ...] = ()
    """What of the command line will not have the expected effect, in sentences."""


class _Flags:
    """All flags, with the handles of those that are read."""

    def __init__(self, host: Host) -> None:
        self.set = FlagSet("koordlet", _DESCRIPTION, koordinator.__version__)
        self.features = make_features()
        self._cluster(self.set.group("Cluster"))
        self._kubelet(self.set.group("Kubelet"))
        self._measuring(self.set.group("Measuring"))
        self._folders(self.set.group("Folders of the machine"), host)
        serving = self.set.group("Serving and logging")
        self.addr = serving.listen_address(
            "addr", _ADDRESS, "Where /metrics is served: HOST:PORT, :PORT for every address, 0 for nowhere."
        )
        self.verbosity = serving.integer("v", 0, "How much is logged, from 0 up.")
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
            "kubelet-preferred-address-type", "InternalIP", "Which address of the Node kubelet is asked at."
        )
        self.sync_interval = group.duration(
            "kubelet-sync-interval", timedelta(seconds=10), "How often kubelet is asked for its pods."
        )
        self.sync_timeout = group.duration(
            "kubelet-sync-timeout", timedelta(seconds=3), "How long an answer of kubelet may take."
        )
        self.insecure = group.boolean("kubelet-insecure-tls", False, "Ask kubelet's read-only port, over plain HTTP.")
        self.read_only_port = group.integer(
            "kubelet-read-only-port", 10255, "Kubelet's read-only port.", minimum=1, maximum=65535
        )
        self.no_configuration = group.boolean(
            "disable-query-kubelet-config", False, "Do not ask kubelet for its configuration (/configz)."
        )

    def _measuring(self, group: FlagGroup) -> None:
        self.collect_interval = group.duration(
            "collect-res-used-interval", timedelta(seconds=1), "How often CPU and memory are measured."
        )
        self.node_info_interval = group.duration(
            "collect-node-cpu-info-interval", timedelta(seconds=60), "How often the topology of the CPUs is read."
        )
        self.page_cache = group.boolean(
            "enable-pagecache-collector", False, "Measure memory with page cache, too, for policies that ask for it."
        )
        self.cache_bytes = group.integer(
            "tsdb-max-bytes",
            100 << 20,
            "What all samples may take in memory; where more would be needed, every second one is kept.",
            minimum=1 << 20,
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

    ConfigurationError if NODE_NAME is not set.
    """
    flags = _Flags(Host() if environment.get("agent_mode") == "hostMode" else Host.in_pod())
    given = flags.set.parse_or_exit(arguments)
    node_name = environment.get("NODE_NAME", "")
    if not node_name:
        raise ConfigurationError("NODE_NAME", "", "set it to the name of this machine's Node")
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
        ),
        listen=given[flags.addr],
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
        with_page_cache=given[flags.page_cache],
        report=given[flags.report],
        cache_bytes=given[flags.cache_bytes],
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
