"""Credentials from an exec plugin: a program that prints an ExecCredential (client.authentication.k8s.io).

It runs when there is no credential yet, when the last one has expired, and once more when the server refuses the one
that it gave; never twice at the same time, since it may be prompting a person. Clients made with the same options share
what it gave.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from koordinator.api import codec
from koordinator.api.meta import WireStruct
from koordinator.api.timestamps import Time
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.kube.credentials import bearer
from koordinator.kube.errors import CredentialError, KubeconfigError
from koordinator.kube.kubeconfig import Cluster, ExecPlugin
from koordinator.kube.tls import KeyPair

logger = logging.getLogger(__name__)

_GROUP = "client.authentication.k8s.io"
_VERSIONS = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")
_MODES = ("Never", "IfAvailable", "Always")
# Long enough for a person to sign in with a browser.
_RUN_SECONDS = 300.0


class _Status(WireStruct):
    expiration_timestamp: Time | None = None
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(WireStruct):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


def check_plugin(plugin: ExecPlugin, where: str) -> None:
    """Raise KubeconfigError for settings that could never work."""
    if not plugin.command:
        raise KubeconfigError(f"{where}: exec.command is not set")
    if plugin.api_version not in _VERSIONS:
        raise KubeconfigError(f"{where}: exec.apiVersion {plugin.api_version!r}: expected {' or '.join(_VERSIONS)}")
    mode = plugin.interactive_mode
    if mode not in _MODES and not (mode == "" and plugin.api_version.endswith("/v1beta1")):
        raise KubeconfigError(f"{where}: exec.interactiveMode {mode!r}: expected one of {', '.join(_MODES)}")


class ExecCredentials:
    """Credentials that a plugin gives to one client. ``present`` is called with each client certificate of it (None:
    none)."""

    def __init__(self, plugin: SharedPlugin, present: Callable[[KeyPair | None], None]) -> None:
        self._plugin = plugin
        self._present = present
        self._status: _Status | None = None
        self._authorization = ""

    async def authorization(self) -> str:
        self._take(await self._plugin.current())
        return self._authorization

    async def renew(self, refused: str) -> bool:
        if self._authorization == refused:
            try:
                self._take(await self._plugin.after(self._status))
            except CredentialError as error:
                logger.warning("the server refused the credentials and there are no new ones: %s", error)
                return False
        return True

    def _take(self, status: _Status) -> None:
        if status is self._status:
            return
        if status.client_certificate_data:
            certificate, key = status.client_certificate_data.encode(), status.client_key_data.encode()
            self._present(KeyPair(certificate=certificate, key=key))
        elif self._status is not None and self._status.client_certificate_data:
            self._present(None)
        self._status = status
        self._authorization = bearer(status.token) if status.token else ""


class SharedPlugins:
    """The plugins that have run: the clients that are made with the same options share what they gave, so that a
    command with several clients does not ask a person several times."""

    def __init__(self) -> None:
        self._plugins: dict[bytes, SharedPlugin] = {}

    def plugin(
        self, plugin: ExecPlugin, cluster: Cluster, clock: Clock, environment: Mapping[str, str]
    ) -> SharedPlugin:
        key = codec.encode([plugin, cluster])
        return self._plugins.setdefault(key, SharedPlugin(plugin, cluster, clock, environment))


class SharedPlugin:
    """Runs a plugin, never twice at the same time, and keeps what it gave last."""

    def __init__(
        self,
        plugin: ExecPlugin,
        cluster: Cluster,
        clock: Clock,
        environment: Mapping[str, str],
        is_terminal: Callable[[], bool] = lambda: sys.stdin is not None and sys.stdin.isatty(),
    ) -> None:
        self._plugin = plugin
        self._cluster = cluster
        self._clock = clock
        self._environment = environment
        self._is_terminal = is_terminal
        self._lock = asyncio.Lock()
        self._status: _Status | None = None

    async def current(self) -> _Status:
        """What it gave, unless that has expired. Raises CredentialError."""
        status = self._status
        if status is None or not self._holds(status):
            status = await self.after(status)
        return status

    async def after(self, refused: _Status | None) -> _Status:
        """What it has given after ``refused``. Raises CredentialError."""
        async with self._lock:
            if self._status is None or self._status is refused:
                self._status = self._read(await self._run())
            return self._status

    def _holds(self, status: _Status) -> bool:
        expiry = status.expiration_timestamp
        return expiry is None or self._clock.now() <= expiry

    async def _run(self) -> bytes:
        interactive = self._is_interactive()
        try:
            process = await asyncio.create_subprocess_exec(
                self._plugin.command,
                *self._plugin.args,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                env={
                    **self._environment,
                    **{variable.name: variable.value for variable in self._plugin.env},
                    "KUBERNETES_EXEC_INFO": codec.encode(self._request(interactive)).decode(),
                },
            )
        except OSError as error:
            hint = f"; {self._plugin.install_hint}" if self._plugin.install_hint else ""
            raise CredentialError(f"exec plugin {self._plugin.command}: {error.strerror}{hint}") from error
        return await self._output(process)

    async def _output(self, process: asyncio.subprocess.Process) -> bytes:
        try:
            output, _ = await within(self._clock, _RUN_SECONDS, process.communicate())
        except TimeoutError as error:
            raise CredentialError(f"exec plugin {self._plugin.command}: no end after {_RUN_SECONDS:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise CredentialError(f"exec plugin {self._plugin.command}: exit status {process.returncode}")
        return output

    def _is_interactive(self) -> bool:
        mode = self._plugin.interactive_mode
        if mode == "Always" and not self._is_terminal():
            raise CredentialError(
                f"exec plugin {self._plugin.command}: interactiveMode is Always and standard input is not a terminal"
            )
        return mode != "Never" and self._is_terminal()

    def _request(self, interactive: bool) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": interactive}
        if self._plugin.provide_cluster_info:
            spec["cluster"] = _cluster_information(self._cluster)
        return {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}

    def _read(self, output: bytes) -> _Status:
        """The plugin's output. Messages never quote it: it holds secrets."""
        where = f"exec plugin {self._plugin.command}"
        try:
            response = codec.decode(output, _ExecCredential)
        except codec.DecodeError:
            raise CredentialError(f"{where}: its output is not an ExecCredential in JSON") from None
        if (response.api_version, response.kind) != (self._plugin.api_version, "ExecCredential"):
            raise CredentialError(
                f"{where}: answered with {response.api_version} {response.kind}, "
                f"expected {self._plugin.api_version} ExecCredential"
            )
        status = response.status
        if status is None or not (status.token or status.client_certificate_data or status.client_key_data):
            raise CredentialError(f"{where}: gave neither status.token nor a client certificate and key")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise CredentialError(f"{where}: gave a client certificate or a key, but not both")
        return status


def _cluster_information(cluster: Cluster) -> dict[str, Any]:
    authority = cluster.certificate_authority_data
    if not authority and cluster.certificate_authority:
        try:
            authority = b64encode(Path(cluster.certificate_authority).read_bytes()).decode()
        except OSError as error:
            raise CredentialError(f"{cluster.certificate_authority}: {error.strerror}") from error
    values = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": authority,
        "proxy-url": cluster.proxy_url,
        "config": cluster.exec_config(),
    }
    return {name: value for name, value in values.items() if value}
