"""The command line of koord-runtime-proxy: the Go original's flags with its defaults, and a few more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

import koordinator
from koordinator.api.labels import SKIP_HOOK_SERVER
from koordinator.base.errors import ConfigurationError
from koordinator.base.flag_types import Flag
from koordinator.base.flags import FlagSet, FlagValues
from koordinator.base.listen_address import ListenAddress, parse_listen_address
from koordinator.base.option_flags import OptionFlags
from koordinator.base.process import nice_flag
from koordinator.base.unused_flags import LOG_FLAGS, LOG_SWITCHES, UnusedFlags
from koordinator.kube.secure_options import TITLE as SECURE
from koordinator.kube.secure_options import SecureOptions
from koordinator.node.host import HOOK_SERVERS

_DESCRIPTION: Final = """\
Stands between kubelet and the container runtime: passes every call on, and calls hook servers such as koordlet before
containers start what to change of them, in place of the Go koord-runtime-proxy. Start it after the container runtime
and before kubelet, and give kubelet its socket:
  kubelet --container-runtime-endpoint=unix:///var/run/koord-runtimeproxy/runtimeproxy.sock

Examples:
  koord-runtime-proxy
      Between kubelet and containerd, everything where it usually is.
  koord-runtime-proxy --remote-runtime-service-endpoint=/var/run/crio/crio.sock --metrics-addr=0
      Another runtime; no health and no metrics."""

_UNUSED: Final = {
    **LOG_FLAGS,
    "remote-image-service-endpoint": "images are requested from --remote-runtime-service-endpoint",
}
_LONGEST_SOCKET_PATH: Final = 107


class Backend(StrEnum):
    """Which engine runs the containers."""

    CONTAINERD = "Containerd"
    DOCKER = "Docker"


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says; times are in seconds."""

    endpoint: Path
    runtime: Path
    backend: Backend
    skip_key: str
    skip_value: str
    hook_folder: Path
    hook_timeout: float
    checkpoint_folder: Path
    metrics: ListenAddress
    metrics_dispensable: bool
    """Whether the proxy works without ``metrics`` if the address is taken: where nobody has chosen it."""
    secure: SecureOptions
    verbosity: int = 0
    nice: int = 0
    remarks: tuple[str, ...] = ()
    """What of the command line will not have the expected effect, in sentences."""


class _Flags:
    def __init__(self) -> None:
        self.set = FlagSet("koord-runtime-proxy", _DESCRIPTION, koordinator.__version__)
        sockets = self.set.group("Sockets")
        self.endpoint = sockets.string(
            "koord-runtimeproxy-endpoint",
            "/var/run/koord-runtimeproxy/runtimeproxy.sock",
            "Where kubelet is served.",
            placeholder="socket",
        )
        self.runtime = sockets.string(
            "remote-runtime-service-endpoint",
            "/var/run/containerd/containerd.sock",
            "Where the container runtime is.",
            placeholder="socket",
        )
        self.backend = sockets.string("backend-runtime-mode", Backend.CONTAINERD.value, "Containerd|Docker.")
        hooks = self.set.group("Hooks")
        self.key = hooks.string(
            "runtime-hook-server-key",
            SKIP_HOOK_SERVER,
            "The label of pods for which no hook is called: those of the hook servers.",
        )
        self.value = hooks.string("runtime-hook-server-val", "true", "The value of that label.")
        self.folder = hooks.string(
            "hook-server-dir", HOOK_SERVERS, "Where hook servers register.", placeholder="folder"
        )
        self.timeout = hooks.duration(
            "hook-timeout",
            timedelta(seconds=2),
            "How long a hook server may take for one response.",
            minimum=timedelta(milliseconds=1),
        )
        self.checkpoints = hooks.string(
            "checkpoint-dir",
            "",
            "Where is kept what hooks get of pods and containers; by default beside the socket that kubelet uses.",
            placeholder="folder",
        )
        serving = self.set.group("Serving and logging")
        self.metrics = serving.string(
            "metrics-addr",
            "127.0.0.1:9318",
            "Where /metrics, /healthz and /readyz are served: HOST:PORT, :PORT for every address, 0: nowhere.",
        )
        self.secure = OptionFlags(SecureOptions, self.set.group, SECURE)
        self.verbosity = serving.integer("v", 0, "How much is logged, from 0 up.")
        self.nice = nice_flag(serving)
        self.unused = UnusedFlags(self.set, _UNUSED, LOG_SWITCHES)


def parse_options(arguments: Sequence[str]) -> Options:
    """Read the command line. Ends the program for --help, --version and mistakes in flags.

    ConfigurationError for a value that cannot be used.
    """
    flags = _Flags()
    given = flags.set.parse_or_exit(arguments)
    backend = given[flags.backend]
    if backend not in set(Backend):
        raise ConfigurationError(
            "unknown runtime engine backend: --backend-runtime-mode", backend, "Containerd, Docker"
        )
    endpoint = _socket(given, flags.endpoint)
    return Options(
        endpoint=endpoint,
        runtime=_socket(given, flags.runtime),
        backend=Backend(backend),
        skip_key=given[flags.key],
        skip_value=given[flags.value],
        hook_folder=Path(given[flags.folder]),
        hook_timeout=given[flags.timeout].total_seconds(),
        checkpoint_folder=Path(given[flags.checkpoints] or endpoint.parent / "checkpoints"),
        metrics=parse_listen_address("--metrics-addr", given[flags.metrics]),
        metrics_dispensable=not given.is_set(flags.metrics),
        secure=flags.secure.read(given),
        verbosity=given[flags.verbosity],
        nice=given[flags.nice],
        remarks=tuple(flags.unused.remarks(given)),
    )


def _socket(given: FlagValues, flag: Flag[str]) -> Path:
    text = given[flag].removeprefix("unix://")
    if not text.startswith("/") or len(text.encode()) > _LONGEST_SOCKET_PATH:
        allowed = f"the absolute path of a unix socket, of at most {_LONGEST_SOCKET_PATH} bytes"
        raise ConfigurationError(f"--{flag.name}", given[flag], allowed)
    return Path(text)
