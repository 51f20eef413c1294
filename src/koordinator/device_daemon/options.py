"""The options of koord-device-daemon: from the command line, else the environment, else a file, else the defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

import msgspec

import koordinator
from koordinator.base.durations import DurationError, format_duration, parse_duration
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.base.flag_types import Flag, FlagError
from koordinator.base.flags import FlagSet, FlagValues
from koordinator.base.listen_address import ListenAddress, parse_listen_address
from koordinator.base.strict_yaml import load_documents
from koordinator.base.unused_flags import LOG_FLAGS, LOG_SWITCHES, UnusedFlags

T = TypeVar("T")

_DESCRIPTION: Final = """\
Finds the accelerators of a node with the tools of their vendors (Huawei Ascend NPU, Cambricon MLU, Baidu Kunlun XPU,
MetaX GPU) and writes them to a file, from which koordlet makes the Device of the node. NVIDIA GPUs are koordlet's own
matter. It queries no API server. Options come from the command line, else the environment (KDD_ONESHOT,
KDD_SLEEP_INTERVAL, KDD_PRINTS_OUTPUT_FILE), else the configuration file.

SIGHUP reads the configuration anew. SIGTERM ends the daemon and removes the file: the node then has no such devices.

Examples:
  koord-device-daemon --oneshot --prints-output-file= --host-root=
      Show what this machine has, and end.
  koord-device-daemon --v=4 --sleep-interval=5m --metrics-addr=:9317
      In a DaemonSet, with the host's root folder at /hostfs; Prometheus and kubelet's probes reach it."""

DEFAULT_METRICS: Final = ListenAddress("127.0.0.1", 9317)
DEFAULT_OUTPUT: Final = "/var/run/koordlet/xpu-device-infos/ic-device"
_ENVIRONMENT: Final[Mapping[str, tuple[str, ...]]] = {
    "oneshot": ("KDD_ONESHOT",),
    "sleep-interval": ("KDD_SLEEP_INTERVAL",),
    "prints-output-file": ("KDD_PRINTS_OUTPUT_FILE", "PRINTS_OUTPUT_FILE"),
    "config-file": ("KDD_CONFIG_FILE", "CONFIG_FILE"),
}
_UNUSED: Final = {**LOG_FLAGS, "no-timestamp": "no timestamp is ever written"}
_LARGEST_FILE: Final = 1 << 20


class ConfigurationFileError(KoordinatorError):
    """The configuration file cannot be used; the text is the original's."""


@dataclass(frozen=True, slots=True)
class Options:
    """``sleep_interval`` is in seconds; ``output`` is empty for standard output."""

    oneshot: bool = False
    sleep_interval: float = 900.0
    output: str = DEFAULT_OUTPUT
    host_root: str = "/hostfs"
    pci_folder: str = "/host-sys/bus/pci/devices"
    dev: str = "/dev"
    metrics: ListenAddress = DEFAULT_METRICS
    metrics_dispensable: bool = True
    """Whether the daemon works without ``metrics`` if the address is taken: where nobody has chosen it."""
    verbosity: int = 1
    remarks: tuple[str, ...] = ()
    """What of the command line has no effect, in sentences."""

    def document(self) -> str:
        """The effective configuration as a configuration file in JSON, on one line of the log."""
        interval = format_duration(timedelta(seconds=self.sleep_interval))
        flags = {"oneshot": self.oneshot, "sleepInterval": interval, "printsOutputFile": self.output}
        return msgspec.json.encode({"version": "v1", "flags": {"kdd": flags}}).decode()


class _FileFlags(msgspec.Struct):
    oneshot: bool | None = None
    sleep_interval: str | int | None = msgspec.field(default=None, name="sleepInterval")
    output: str | None = msgspec.field(default=None, name="printsOutputFile")


class _FileGroups(msgspec.Struct):
    kdd: _FileFlags | None = None


class _File(msgspec.Struct):
    version: str | None = None
    flags: _FileGroups | None = None


_SHORTEST: Final = timedelta(milliseconds=1)


class _Flags:
    def __init__(self, sys: str) -> None:
        self.set = FlagSet("koord-device-daemon", _DESCRIPTION, koordinator.__version__)
        finding = self.set.group("Finding devices")
        self.oneshot = finding.boolean("oneshot", False, "Look once, write the file, end and leave the file there.")
        self.interval = finding.duration(
            "sleep-interval", timedelta(seconds=900), "How long to wait before looking again.", minimum=_SHORTEST
        )
        self.output = finding.string(
            "prints-output-file",
            DEFAULT_OUTPUT,
            "The file to write; empty: standard output.",
            placeholder="file",
        )
        self.config_file = finding.string("config-file", "", "Options as YAML or JSON.", placeholder="file")
        machine = self.set.group("Folders of the machine")
        self.host_root = machine.string(
            "host-root",
            "/hostfs",
            "The machine's root folder, whose tools are run; empty: this one.",
            placeholder="folder",
        )
        self.sys = machine.string("sys-root-dir", sys, "The machine's /sys.", placeholder="folder")
        self.dev = machine.string("dev-root-dir", "/dev", "The machine's /dev.", placeholder="folder")
        serving = self.set.group("Serving and logging")
        self.metrics = serving.string(
            "metrics-addr",
            str(DEFAULT_METRICS),
            "Where /metrics, /healthz and /readyz are served: HOST:PORT, :PORT for every address, 0: nowhere.",
        )
        self.verbosity = serving.integer("v", 1, "How much is logged, from 0 up.")
        self.unused = UnusedFlags(self.set, _UNUSED, {*LOG_SWITCHES, "no-timestamp"})


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Ends the program for --help, --version and mistakes in flags.

    Raises ConfigurationError for the environment, ConfigurationFileError for the file.
    """
    flags = _Flags("/sys" if environment.get("agent_mode") == "hostMode" else "/host-sys")
    given = flags.set.parse_or_exit(arguments)

    def value(flag: Flag[T], in_file: T | None = None) -> T:
        return _value(flag, given, environment, in_file)

    path = value(flags.config_file)
    file = _read(path) if path else _FileFlags()
    return Options(
        oneshot=value(flags.oneshot, file.oneshot),
        sleep_interval=value(flags.interval, _interval(file.sleep_interval)).total_seconds(),
        output=value(flags.output, file.output),
        host_root=given[flags.host_root].rstrip("/"),
        pci_folder=f"{given[flags.sys].rstrip('/')}/bus/pci/devices",
        dev=given[flags.dev],
        metrics=parse_listen_address("--metrics-addr", given[flags.metrics]),
        metrics_dispensable=not given.is_set(flags.metrics),
        verbosity=given[flags.verbosity],
        remarks=tuple(flags.unused.remarks(given)),
    )


def _value(flag: Flag[T], given: FlagValues, environment: Mapping[str, str], in_file: T | None) -> T:
    if given.is_set(flag):
        return given[flag]
    for variable in _ENVIRONMENT.get(flag.name, ()):
        text = environment.get(variable)
        if text is not None:
            return _from_environment(flag, variable, text)
    return flag.default if in_file is None else in_file


def _from_environment(flag: Flag[T], variable: str, text: str) -> T:
    # The original's library takes an empty variable for false, and parses every other one as a flag.
    if not text and isinstance(flag.default, bool):
        return flag.default
    try:
        return flag.parse(variable, text)
    except ConfigurationError as error:
        raise FlagError(f"{variable} (for --{flag.name})", text, error.allowed) from error


def _read(path: str) -> _FileFlags:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise _unusable(f"error opening config file: open {path}: {why}") from error
    if len(content) > _LARGEST_FILE:
        raise _unusable(f"error parsing config file: read error: more than {_LARGEST_FILE} bytes")
    try:
        documents = load_documents(content.decode(), "the document")
        file = msgspec.convert(documents[0] if documents else {}, _File)
        flags = (file.flags and file.flags.kdd) or _FileFlags()
        _interval(flags.sleep_interval)
    except (ConfigurationError, ValueError, DurationError) as error:
        raise _unusable(f"error parsing config file: unmarshal error: {error}") from error
    if file.version not in (None, "", "v1"):
        raise _unusable(f"error parsing config file: unknown version: {file.version}")
    return flags


def _interval(value: str | int | None) -> timedelta | None:
    """A number counts nanoseconds. Raises DurationError."""
    if value is None:
        return None
    interval = parse_duration(value) if isinstance(value, str) else timedelta(microseconds=value / 1000)
    if interval < _SHORTEST:
        raise DurationError(f"flags.kdd.sleepInterval: {value!r} is not usable: at least {format_duration(_SHORTEST)}")
    return interval


def _unusable(why: str) -> ConfigurationFileError:
    return ConfigurationFileError(
        f"unable to load config: unable to finalize config: unable to parse config file: {why}"
    )
