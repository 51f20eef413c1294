"""How hooks reach pods: the ``--runtime-hooks-…`` flags, with the original's defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from koordinator.base.flag_types import FlagGroup
from koordinator.base.flags import FlagValues
from koordinator.koordlet.enforce.hooks.registry import Stage
from koordinator.node.host import HOOK_SERVERS, Host

FAIL: Final = "Fail"
IGNORE: Final = "Ignore"
_SHORTEST_INTERVAL: Final = timedelta(milliseconds=100)
_ON_HOST: Final = "/var/run/koordlet/koordlet.sock"
_IN_POD: Final = "/host-var-run-koordlet/koordlet.sock"


@dataclass(frozen=True, slots=True)
class NRIOptions:
    """How a container runtime is followed by NRI; not at all where ``socket`` is empty. Times are in seconds."""

    socket: str = ""
    name: str = "koordlet_nri"
    index: str = "00"
    connect_timeout: float = 6.0
    first_pause: float = 1.0
    factor: float = 2.0
    longest_pause: float = 60.0


@dataclass(frozen=True, slots=True)
class HookOptions:
    """``socket`` is where runtime proxies are served, nowhere if it is empty; ``endpoint`` is its path on the host."""

    socket: str = ""
    endpoint: str = _ON_HOST
    registration_folder: str = HOOK_SERVERS
    proxy_fails: bool = False
    """Whether a runtime proxy lets no container start when it gets no response."""
    hooks_fail: bool = False
    """Whether a pod does not start when a hook says an error of it."""
    disabled_stages: tuple[str, ...] = ()
    """Stages that proxies do not register for."""
    reconcile_interval: float = 10.0
    """In seconds."""
    unsets_quota: bool = True
    hami_library: str = "/usr/local/vgpu/libvgpu.so"
    nri: NRIOptions = field(default_factory=NRIOptions)


class HookFlags:
    """The flags, in one group of the help text."""

    def __init__(self, group: FlagGroup, host: Host) -> None:
        default = HookOptions()
        on_host = host.var_run == Host().var_run
        self._network = group.string(
            "runtime-hooks-network", "unix", "How runtime proxies are served.", allowed=("unix",)
        )
        self._socket = group.string(
            "runtime-hooks-addr",
            _ON_HOST if on_host else _IN_POD,
            "The socket at which runtime proxies are served; empty: nowhere.",
            placeholder="path",
        )
        self._endpoint = group.string(
            "runtime-hooks-host-endpoint", _ON_HOST, "The same socket as the host has it.", placeholder="path"
        )
        self._folder = group.string(
            "runtime-hooks-config-path",
            HOOK_SERVERS if on_host else "/host-etc-hookserver/",
            "The folder in which runtime proxies find it.",
            placeholder="folder",
        )
        self._proxy_policy = group.string(
            "runtime-hooks-failure-policy",
            IGNORE,
            "What a runtime proxy does with a pod when it gets no response.",
            allowed=(FAIL, IGNORE),
        )
        self._hook_policy = group.string(
            "runtime-hooks-plugin-failure-policy",
            IGNORE,
            "What becomes of a pod whose annotations a hook cannot read.",
            allowed=(FAIL, IGNORE),
        )
        self._disabled = group.strings(
            "runtime-hooks-disable-stages",
            (),
            "Stages for which runtime proxies do not call koordlet.",
            allowed=tuple(Stage),
        )
        self._interval = group.duration(
            "runtime-hooks-reconcile-interval",
            timedelta(seconds=10),
            "How often the cgroups of pods are gone over, beside every change.",
            minimum=_SHORTEST_INTERVAL,
        )
        self._keeps_quota = group.boolean(
            "disable-unset-cpu-quota", False, "Throttle pods with CPUs of their own at their limit."
        )
        self._hami = group.string(
            "hami-core-library-directory-path",
            "/usr/local/vgpu/libvgpu.so",
            "The library that holds containers to their share of a GPU.",
            placeholder="path",
        )

        self._follow = group.boolean("enable-nri-runtime-hook", True, "Follow the container runtime by NRI.")
        self._nri_socket = group.string(
            "runtime-hooks-nri-socket-path",
            "nri/nri.sock",
            "NRI's socket, below the folder of --var-run-root-dir.",
            placeholder="path",
        )
        self._nri_name = group.string(
            "runtime-hooks-nri-plugin-name", default.nri.name, "The name of the plugin there."
        )
        self._nri_index = group.string(
            "runtime-hooks-nri-plugin-index", default.nri.index, "Its place among the plugins: two digits."
        )
        self._nri_timeout = group.duration(
            "runtime-hooks-nri-connect-timeout",
            timedelta(seconds=default.nri.connect_timeout),
            "How long the runtime may take to accept it.",
            minimum=_SHORTEST_INTERVAL,
        )
        self._nri_pause = group.duration(
            "runtime-hooks-nri-backoff-duration",
            timedelta(seconds=default.nri.first_pause),
            "The first pause before it is tried again.",
            minimum=_SHORTEST_INTERVAL,
        )
        self._nri_factor = group.number(
            "runtime-hooks-nri-backoff-factor",
            default.nri.factor,
            "By how much each pause is longer than the last.",
            minimum=1.0,
        )
        self._nri_longest = group.duration(
            "runtime-hooks-nri-backoff-cap",
            timedelta(seconds=default.nri.longest_pause),
            "The longest pause.",
            minimum=_SHORTEST_INTERVAL,
        )

    def options(self, given: FlagValues) -> HookOptions:
        """What the command line says."""
        return HookOptions(
            socket=given[self._socket],
            endpoint=given[self._endpoint],
            registration_folder=given[self._folder].rstrip("/") or "/",
            proxy_fails=given[self._proxy_policy] == FAIL,
            hooks_fail=given[self._hook_policy] == FAIL,
            disabled_stages=given[self._disabled],
            reconcile_interval=given[self._interval].total_seconds(),
            unsets_quota=not given[self._keeps_quota],
            hami_library=given[self._hami],
            nri=self._nri(given),
        )

    def _nri(self, given: FlagValues) -> NRIOptions:
        return NRIOptions(
            socket=given[self._nri_socket] if given[self._follow] else "",
            name=given[self._nri_name],
            index=given[self._nri_index],
            connect_timeout=given[self._nri_timeout].total_seconds(),
            first_pause=given[self._nri_pause].total_seconds(),
            factor=given[self._nri_factor],
            longest_pause=given[self._nri_longest].total_seconds(),
        )
