"""The port of a program for a cluster: HTTPS, and only whom the API server admits.

The certificate is read from files, and again when they change; without files, the program makes one for itself.
Clients are known by a bearer token or by a certificate of the cluster's authority for clients, which is read from the
ConfigMap ``extension-apiserver-authentication`` of kube-system.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from koordinator.api.kinds import CONFIG_MAPS
from koordinator.base.errors import ConfigurationError
from koordinator.base.loops import Loop, LoopSupervisor
from koordinator.base.program import Process
from koordinator.base.said_once import SaidOnce
from koordinator.kube.connect import ClientOptions, connected
from koordinator.kube.errors import KubeError
from koordinator.kube.interface import Client
from koordinator.kube.secure_options import CERTIFICATE, PORT, PRIVATE_KEY, SecureOptions
from koordinator.kube.serving_certificate import ServingCertificate

if TYPE_CHECKING:
    from koordinator.kube.delegated_access import DelegatedAccess

logger = logging.getLogger(__name__)

_NAMESPACE, _NAME, _KEY = "kube-system", "extension-apiserver-authentication", "client-ca-file"
_PERIOD: Final = 60.0
_QUESTION_SECONDS: Final = 10.0
_QUESTIONS_PER_SECOND: Final = 100.0


def certificate_files(options: SecureOptions, now: datetime) -> AbstractContextManager[tuple[Path, Path]]:
    """Those of the flags, else of a certificate that is made for as long as the block runs."""
    if options.certificate:
        return nullcontext((Path(options.certificate), Path(options.key)))
    if options.folder:
        return nullcontext((Path(options.folder, "tls.crt"), Path(options.folder, "tls.key")))
    try:
        from koordinator.kube.self_signed import self_signed_files
    except ModuleNotFoundError as error:
        allowed = f"without the package {error.name}, it needs --{CERTIFICATE} and --{PRIVATE_KEY}"
        raise ConfigurationError(f"--{PORT}", options.port, allowed) from error
    return self_signed_files(now)


class SecureServing:
    """What the port needs while it is open: its certificate, and the answers of the API server."""

    def __init__(self, options: SecureOptions, reaching: ClientOptions, process: Process) -> None:
        """``reaching`` is how the program reaches the API server. Its requests do not wait for those of the program,
        nor those of the program for them."""
        self._options = options
        self._reaching = replace(
            reaching, qps=_QUESTIONS_PER_SECOND, burst=int(_QUESTIONS_PER_SECOND), timeout_seconds=_QUESTION_SECONDS
        )
        self._process = process
        self._said = SaidOnce(logger)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[ServingCertificate, DelegatedAccess]]:
        """Raises ServingCertificateError, KubeconfigError or CredentialError for what cannot be used."""
        # Loaded by the server that it is for, and by nothing before.
        from koordinator.kube.delegated_access import DelegatedAccess

        options, clock = self._options, self._process.clock
        loops = LoopSupervisor(clock=clock, random=self._process.random, metrics=self._process.metrics)
        with certificate_files(options, clock.now()) as files:
            certificate = ServingCertificate(*files)
            certificate.reload()
            async with (
                self._client(options.authentication_kubeconfig) as reviewing,
                self._client(options.authorization_kubeconfig) as authorizing,
            ):
                loops.add(Loop("secure-port", lambda: self._refresh(certificate, reviewing), _PERIOD, deadline=_PERIOD))
                refreshing = asyncio.create_task(loops.run(), name="secure port")
                try:
                    yield certificate, DelegatedAccess(reviewing, authorizing, clock, options.access())
                finally:
                    refreshing.cancel()
                    await asyncio.wait([refreshing])

    def _client(self, kubeconfig: str) -> AbstractAsyncContextManager[Client]:
        reaching = replace(self._reaching, kubeconfig=kubeconfig, master="") if kubeconfig else self._reaching
        return connected(reaching)

    async def _refresh(self, certificate: ServingCertificate, client: Client) -> None:
        """The files, and the authority of clients, as they are now."""
        with self._said.round():
            await certificate.reload_if_changed()
            authority = await self._authority(client)
            if authority and certificate.trust(authority):
                logger.info("clients are known by the certificates of an authority that has come")

    async def _authority(self, client: Client) -> str:
        options = self._options
        if options.client_authority:
            return await asyncio.to_thread(Path(options.client_authority).read_text, "ascii")
        if options.skip_lookup:
            return ""
        try:
            return (await client.get(CONFIG_MAPS, _NAME, _NAMESPACE)).data.get(_KEY, "")
        except KubeError as error:
            self._said.say(f"clients are known by their tokens alone, not by certificates: {error}", about=_NAME)
            return ""
