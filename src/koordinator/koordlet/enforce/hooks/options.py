"""How hooks reach pods: options whose flags are the original's ``--runtime-hooks-…``, with its defaults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from koordinator.base.flag_types import FlagGroup
from koordinator.base.flags import FlagValues
from koordinator.base.option_flags import group, interval, number, seconds, switch, text, texts
from koordinator.koordlet.enforce.hooks.registry import Stage
from koordinator.node.host import HOOK_SERVERS, Host

HOOKS: Final = "Hooks of starting pods"
"""The heading in the help text."""
FAIL: Final = "Fail"
_POLICIES: Final = (FAIL, "Ignore")
_SHORTEST: Final = 0.1
"""Seconds that each time of NRI is at least."""
_ON_HOST: Final = "/var/run/koordlet/koordlet.sock"
_IN_POD: Final = "/host-var-run-koordlet/koordlet.sock"


@dataclass(frozen=True, slots=True)
class NRIOptions:
    """How a container runtime is followed by NRI; not at all where ``socket`` is empty. Times are in seconds."""

    socket: str = ""
    name: str = text("runtime-hooks-nri-plugin-name", "koordlet_nri", "The name of the plugin there.")
    index: str = text("runtime-hooks-nri-plugin-index", "00", "Its place among the plugins: two digits.")
    connect_timeout: float = seconds(
        "runtime-hooks-nri-connect-timeout", 6.0, "How long the runtime may take to accept it.", minimum=_SHORTEST
    )
    first_pause: float = seconds(
        "runtime-hooks-nri-backoff-duration", 1.0, "The first pause before it is tried again.", minimum=_SHORTEST
    )
    factor: float = number(
        "runtime-hooks-nri-backoff-factor", 2.0, "By how much each pause is longer than the last.", minimum=1.0
    )
    longest_pause: float = seconds("runtime-hooks-nri-backoff-cap", 60.0, "The longest pause.", minimum=_SHORTEST)


@dataclass(frozen=True, slots=True)
class HookOptions:
    """``socket`` is where runtime proxies are served, nowhere if it is empty; ``endpoint`` is its path on the host."""

    socket: str = ""
    endpoint: str = text(
        "runtime-hooks-host-endpoint", _ON_HOST, "The same socket as the host has it.", placeholder="path"
    )
    registration_folder: str = HOOK_SERVERS
    failure_policy: str = text(
        "runtime-hooks-failure-policy",
        "Ignore",
        "What a runtime proxy does with a pod when it gets no response.",
        allowed=_POLICIES,
    )
    plugin_failure_policy: str = text(
        "runtime-hooks-plugin-failure-policy",
        "Ignore",
        "What becomes of a pod whose annotations a hook cannot read.",
        allowed=_POLICIES,
    )
    disabled_stages: tuple[str, ...] = texts(
        "runtime-hooks-disable-stages",
        (),
        "Stages for which runtime proxies do not call koordlet.",
        allowed=tuple(Stage),
    )
    reconcile_interval: float = interval(
        "runtime-hooks-reconcile-interval", 10.0, "How often the cgroups of pods are gone over, beside every change."
    )
    unsets_quota: bool = switch(
        "disable-unset-cpu-quota", True, "Throttle pods with CPUs of their own at their limit.", negated=True
    )
    hami_library: str = text(
        "hami-core-library-directory-path",
        "/usr/local/vgpu/libvgpu.so",
        "The library that holds containers to their share of a GPU.",
        placeholder="path",
    )
    nri: NRIOptions = group(HOOKS, NRIOptions)


class HookFlags:
    """The flags of what is served and followed: without the command line nothing is, so they are no single options."""

    def __init__(self, group: FlagGroup, host: Host) -> None:
        on_host = host.var_run == Host().var_run
        group.string("runtime-hooks-network", "unix", "How runtime proxies are served.", allowed=("unix",))
        self._socket = group.string(
            "runtime-hooks-addr",
            _ON_HOST if on_host else _IN_POD,
            "The socket at which runtime proxies are served; empty: nowhere.",
            placeholder="path",
        )
        self._folder = group.string(
            "runtime-hooks-config-path",
            HOOK_SERVERS if on_host else "/host-etc-hookserver/",
            "The folder in which runtime proxies find it.",
            placeholder="folder",
        )
        self._follow = group.boolean("enable-nri-runtime-hook", True, "Follow the container runtime by NRI.")
        self._nri_socket = group.string(
            "runtime-hooks-nri-socket-path",
            "nri/nri.sock",
            "NRI's socket, below the folder of --var-run-root-dir.",
            placeholder="path",
        )

    def served(self, options: HookOptions, given: FlagValues) -> HookOptions:
        """The options with what the command line says of these."""
        return replace(
            options,
            socket=given[self._socket],
            registration_folder=given[self._folder].rstrip("/") or "/",
            nri=replace(options.nri, socket=given[self._nri_socket] if given[self._follow] else ""),
        )
