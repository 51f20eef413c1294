"""The command line of koordlet: the Go original's flags, with its defaults but for a loopback address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import koordinator
from koordinator.base.errors import ConfigurationError
from koordinator.base.flags import FlagSet, FlagValues
from koordinator.base.listen_address import NOWHERE, ListenAddress
from koordinator.base.option_flags import OptionFlags
from koordinator.base.process import nice_flag
from koordinator.base.unused_flags import KLOG_FLAGS, KLOG_SWITCHES, UnusedFlags
from koordinator.koordlet import options
from koordinator.koordlet.enforce.hooks.options import HOOKS, HookFlags
from koordinator.koordlet.features import WITHOUT_EFFECT, make_features
from koordinator.koordlet.observe.metric_cache.backends import FLAG as BACKEND_FLAG
from koordinator.koordlet.observe.metric_cache.backends import MEMORY
from koordinator.koordlet.observe.prediction.options import PREDICTION
from koordinator.koordlet.options import Folders, Options, ReadOptions, WatchedConfiguration
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

_ADDRESS: Final = ListenAddress("127.0.0.1", 9316, "--addr")
_PROFILE_ADDRESS: Final = ListenAddress("127.0.0.1", 9317, "--pprof-addr")
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
_PROMETHEUS: Final = (
    *("tsdb-enable-prometheus-metric", "tsdb-stripe-size", "tsdb-wal-segment-size"),
    *("tsdb-max-block-chunk-segment-size", "tsdb-min-block-duration", "tsdb-max-block-duration"),
    "tsdb-head-chunks-write-buffer-size",
)
_RETENTION: Final = "the retention of samples follows the windows of the NodeMetric"
_UNUSED: Final[Mapping[str, str]] = {
    **KLOG_FLAGS,
    **dict.fromkeys(_CADVISOR, "there is no cAdvisor in koordlet"),
    "report-interval": "the NodeMetric says how often to report",
    "metric-gc-interval-seconds": "old samples are dropped for newer ones",
    "metric-expire-seconds": _RETENTION,
    "tsdb-retention-duration": _RETENTION,
    **dict.fromkeys(_PROMETHEUS, "the store is not Prometheus'"),
    "only-evict-by-api": "pods are always evicted through the API server",
    **dict.fromkeys(("containerd-endpoint", "docker-endpoint", "pouch-endpoint"), _NO_RUNTIME),
    "default-runtime-type": "a pod's status says of each container which runtime it has",
    "enable-pod-taskids": "the tasks of pods with a group of resctrl (gate Resctrl) are always looked at",
    "runtime-hooks-nri-backoff-steps": "it is tried as long as it takes",
    "collect-sys-metric-outdated-interval": "what the system uses is made of the last readings of everything else",
}
"""Flags of the original that do nothing here, and why."""

_HOST: Final = {
    "cgroup": ("cgroup-root-dir", "Where the machine's cgroup hierarchies are mounted."),
    "sys": ("sys-root-dir", "The machine's /sys."),
    "sys_fs": ("sys-fs-root-dir", "The machine's /sys/fs, for resctrl."),
    "proc": ("proc-root-dir", "The machine's /proc."),
    "var_run": ("var-run-root-dir", "The machine's /var/run, for the sockets of container runtimes."),
    "run": ("run-root-dir", "The machine's /run."),
    "var_lib_kubelet": ("var-lib-kubelet-dir", "The machine's /var/lib/kubelet, for kubelet's own state."),
}
"""The flags of the folders of ``Host``, by its fields."""
_OWN: Final = {
    "forecasts": (
        *(PREDICTION, "prediction-checkpoint-filepath", "/prediction-checkpoints"),
        "Where what was learned is kept over restarts.",
    ),
    "audit": (options.AUDIT, "audit-log-dir", "/var/log/koordlet", "Where it is written (gate AuditEvents)."),
    "devices": (
        *(options.MEASURING, "xpu-device-infos-dir", "/var/run/koordlet/xpu-device-infos/"),
        "Where koord-device-daemon and others say which accelerators there are (gate Accelerators).",
    ),
    "pod_resources": (
        *(options.MEASURING, "pod-resources-proxy-path", "/var/run/koordlet/pod-resources"),
        "Where kubelet's pod-resources API is served, with devices of koord-scheduler (gate PodResourcesProxy).",
    ),
    "samples": (
        options.MEASURING,
        "tsdb-path",
        "/metric-data/",
        "Where the copy of --metric-cache-backend is kept.",
    ),
}
"""The headings, flags and defaults of the folders of ``Folders``, by its fields."""

_SWITCHES: Final = KLOG_SWITCHES | {
    *(*_CADVISOR_SWITCHES, "only-evict-by-api", "enable-pod-taskids", "tsdb-enable-prometheus-metric")
}


class _Flags:
    """All flags, with the handles of those that are no single option."""

    def __init__(self, host: Host) -> None:
        self.set = FlagSet("koordlet", _DESCRIPTION, koordinator.__version__)
        self.features = make_features()
        groups = {title: self.set.group(title) for title in options.TITLES}
        self.options = OptionFlags(Options, groups.__getitem__)
        self.hooks = HookFlags(groups[HOOKS], host)
        self.host = {
            field: groups[options.FOLDERS].string(name, f"{getattr(host, field)}/", text, placeholder="folder")
            for field, (name, text) in _HOST.items()
        }
        self.own = {
            field: groups[title].string(name, default, text, placeholder="folder")
            for field, (title, name, default, text) in _OWN.items()
        }
        self.cache_backend = groups[options.MEASURING].string(
            BACKEND_FLAG,
            MEMORY,
            "Where samples are kept: memory loses them when koordlet starts anew, sqlite keeps a copy in --tsdb-path,"
            " and so does the backend of another package, by its name.",
        )
        cluster = groups[options.CLUSTER]
        self.configuration_name = cluster.string(
            "configmap-name",
            "koordlet-config",
            "The ConfigMap with flags that take effect while koordlet runs; empty: none.",
        )
        self.configuration_namespace = cluster.string("configmap-namespace", "koordinator-system", "Where it is.")
        serving = groups[options.SERVING]
        self.addr = serving.listen_address(
            "addr", _ADDRESS, "Where /metrics is served: HOST:PORT, :PORT for every address, 0 for nowhere."
        )
        self.pprof = serving.boolean("enable-pprof", False, "Serve profiles of koordlet under /debug/pprof.")
        self.pprof_address = serving.listen_address(
            "pprof-addr", _PROFILE_ADDRESS, "Where to serve them. No authentication."
        )
        self.nice = nice_flag(serving)
        self.gates = self.set.group("Feature").feature_gates(self.features)
        self.unused = UnusedFlags(self.set, _UNUSED, _SWITCHES)

    def configuration(self, given: FlagValues, read: ReadOptions) -> WatchedConfiguration | None:
        name = given[self.configuration_name]
        return WatchedConfiguration(name, given[self.configuration_namespace], read) if name else None

    def folders(self, given: FlagValues) -> Folders:
        keeps_samples = given[self.cache_backend] != MEMORY
        paths = {field: Path(given[flag]) for field, flag in self.own.items() if field != "samples" or keeps_samples}
        return Folders(**paths)


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Read the command line. Ends the program for --help, --version and mistakes in flags.

    ConfigurationError if NODE_NAME is not set, or if flags exclude each other.
    """
    flags = _Flags(_machine(environment))
    found = _options(flags, flags.set.parse_or_exit(arguments), arguments, environment)
    if found.cleanup and found.enforcement.observe_only:
        raise ConfigurationError("--cleanup", True, "it writes, which --observe-only excludes")
    return found


def _machine(environment: Mapping[str, str]) -> Host:
    return Host() if environment.get("agent_mode") == "hostMode" else Host.in_pod()


def _with_flags(arguments: Sequence[str], environment: Mapping[str, str], more: Mapping[str, str]) -> Options:
    flags = _Flags(_machine(environment))
    given = flags.set.parse([*arguments, *(f"--{name}={text}" for name, text in more.items())])
    return _options(flags, given, arguments, environment)


def _options(flags: _Flags, given: FlagValues, arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    node_name = environment.get("NODE_NAME", "")
    if not node_name:
        raise ConfigurationError("NODE_NAME", "", "set it to the name of this machine's Node")
    remarks = (
        *flags.unused.remarks(given),
        *(
            f"--feature-gates={name}=true has no effect: the feature is not built yet"
            for name, is_on in given[flags.gates].items()
            if is_on and name in WITHOUT_EFFECT
        ),
    )
    found = flags.options.read(
        given,
        node_name=node_name,
        host=replace(_machine(environment), **{field: given[flag].rstrip("/") for field, flag in flags.host.items()}),
        listen=given[flags.addr],
        folders=flags.folders(given),
        backend=given[flags.cache_backend],
        profiles=given[flags.pprof_address] if given[flags.pprof] else NOWHERE,
        nice=given[flags.nice],
        features=flags.features,
        remarks=remarks,
        configuration=flags.configuration(given, partial(_with_flags, arguments, environment)),
    )
    return replace(found, hooks=flags.hooks.served(found.hooks, given))
