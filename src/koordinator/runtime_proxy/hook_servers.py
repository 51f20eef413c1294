"""Hook servers register by a file in a folder: read again when it changes, forgotten when it is gone.

The folder is looked at twice a second. That costs nothing for a handful of files, and it works on whatever is mounted
there, where inotify would miss what another mount namespace or a network file system does.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from koordinator.api.codec import DecodeError, decode
from koordinator.runtime_proxy.errors import RuntimeProxyError

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.5
_LONGEST_FILE: Final = 1 << 20
_LONGEST_SOCKET_PATH: Final = 107


class HookPoint(StrEnum):
    """A moment around a call of the container runtime."""

    PRE_RUN_POD_SANDBOX = "PreRunPodSandbox"
    POST_STOP_POD_SANDBOX = "PostStopPodSandbox"
    PRE_CREATE_CONTAINER = "PreCreateContainer"
    PRE_START_CONTAINER = "PreStartContainer"
    POST_START_CONTAINER = "PostStartContainer"
    PRE_UPDATE_CONTAINER_RESOURCES = "PreUpdateContainerResources"
    POST_STOP_CONTAINER = "PostStopContainer"

    @property
    def method(self) -> str:
        """The gRPC method of hook servers."""
        return f"/runtime.v1alpha1.RuntimeHookService/{self.value}Hook"


@dataclass(frozen=True, slots=True)
class HookServer:
    """One registered hook server."""

    name: str
    """The file's name: its place in the order in which servers are called."""
    endpoint: Path
    fails: bool
    """Whether its errors fail the calls before which it is called."""
    hooks: frozenset[HookPoint]


class _File(msgspec.Struct, rename="kebab"):
    remote_endpoint: str = ""
    failure_policy: str | None = None
    runtime_hooks: list[str] | None = None


class HookFileError(RuntimeProxyError):
    """A file that registers nothing; the text says why."""


def parse_hook_file(name: str, content: bytes) -> HookServer:
    """The hook server that a file registers. HookFileError if it cannot be used."""
    if len(content) > _LONGEST_FILE:
        raise HookFileError(f"longer than {_LONGEST_FILE} bytes")
    try:
        file = decode(content, _File)
    except DecodeError as error:
        raise HookFileError(str(error)) from error
    endpoint = file.remote_endpoint.removeprefix("unix://")
    if not endpoint.startswith("/") or len(endpoint.encode()) > _LONGEST_SOCKET_PATH:
        raise HookFileError(
            f"remote-endpoint {file.remote_endpoint!r}: write the absolute path of a unix socket, "
            f"of at most {_LONGEST_SOCKET_PATH} bytes"
        )
    known = {point.value: point for point in HookPoint}
    return HookServer(
        name=name,
        endpoint=Path(endpoint),
        fails=file.failure_policy == "Fail",
        hooks=frozenset(known[hook] for hook in file.runtime_hooks or () if hook in known),
    )


_Version = tuple[int, int, int]


class HookServerFolder:
    """The servers that are registered in one folder, as of the last ``scan``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._versions: dict[str, _Version] = {}
        self._servers: dict[str, HookServer] = {}
        self._by_hook: Mapping[HookPoint, tuple[HookServer, ...]] = {}
        self._unreadable = ""

    def servers(self, hook: HookPoint) -> tuple[HookServer, ...]:
        """Those that are registered for the hook, in the order of their files' names."""
        return self._by_hook.get(hook, ())

    @property
    def endpoints(self) -> set[Path]:
        """The sockets of all servers."""
        return {server.endpoint for server in self._servers.values()}

    def scan(self) -> bool:
        """Look at the folder; whether anything has changed. A folder that is missing is made."""
        try:
            versions = self._list()
        except OSError as error:
            # Said once, until it works again: what was registered stays registered.
            if str(error) != self._unreadable:
                logger.warning("hook servers cannot be read: %s", error)
            self._unreadable = str(error)
            return False
        self._unreadable = ""
        if versions == self._versions:
            return False
        for name in self._servers.keys() - versions.keys():
            logger.info("hook server %s is forgotten: its file is gone", name)
            del self._servers[name]
        for name, version in versions.items():
            if self._versions.get(name) != version:
                self._load(name)
        self._versions = versions
        ordered = [self._servers[name] for name in sorted(self._servers)]
        self._by_hook = {hook: tuple(server for server in ordered if hook in server.hooks) for hook in HookPoint}
        return True

    def _list(self) -> dict[str, _Version]:
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        versions = {}
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith("json") and entry.is_file():
                    status = entry.stat()
                    versions[entry.name] = (status.st_ino, status.st_size, status.st_mtime_ns)
        return versions

    def _load(self, name: str) -> None:
        try:
            with (self._folder / name).open("rb") as file:
                server = parse_hook_file(name, file.read(_LONGEST_FILE + 1))
        except (OSError, HookFileError) as error:
            kept = "what it said before stays in force" if name in self._servers else "it registers nothing"
            logger.warning("%s: %s; %s", self._folder / name, error, kept)
            return
        self._servers[name] = server
        hooks = ", ".join(sorted(server.hooks)) or "no hook that is known"
        logger.info("hook server %s: %s at %s", name, hooks, server.endpoint)
