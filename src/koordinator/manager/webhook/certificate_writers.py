"""Storage of the certificates: in a Secret that all replicas share, or in the folder alone.

Replicas agree through the Secret: the first to create it wins and the others use its content. An invalid one is
replaced with the resource version that was read, so that only one of several replicas succeeds.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from pathlib import Path
from typing import Protocol

from koordinator.api.core import Secret
from koordinator.api.kinds import SECRETS
from koordinator.base.clock import Clock
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType
from koordinator.manager.missing import NotInstalledError, missing_namespace
from koordinator.manager.webhook.certificate_files import from_files, read_files, to_files
from koordinator.manager.webhook.certificates import Certificates, fault, make_certificates

logger = logging.getLogger(__name__)


class CertificateWriter(Protocol):
    """Stores the certificates of one name."""

    async def ensure(self) -> Certificates:
        """Return valid certificates, made or renewed if necessary. Raises KoordinatorError."""
        ...


class FileWriter:
    """Uses the certificates in the serving folder; each process that makes its own has its own authority.

    New certificates are not written here but by ConfigurationSync, once API servers trust their authority.
    """

    def __init__(self, folder: Path, name: str, clock: Clock) -> None:
        self._folder = folder
        self._name = name
        self._clock = clock
        self._made = Certificates()

    async def ensure(self) -> Certificates:
        return await asyncio.to_thread(self._ensure)

    def _ensure(self) -> Certificates:
        now = self._clock.now()
        found = read_files(self._folder)
        wrong = fault(found, self._name, now) if found is not None else "there are none"
        if found is not None and not wrong:
            return found
        if fault(self._made, self._name, now):
            logger.info("making webhook certificates for %s: %s", self._folder, wrong)
            self._made = make_certificates(self._name, now)
        return self._made


class SecretWriter:
    """Stores the certificates in one Secret."""

    def __init__(self, client: Client, namespace: str, secret: str, name: str, clock: Clock) -> None:
        self._client = client
        self._namespace = namespace
        self._secret = secret
        self._name = name
        self._clock = clock

    async def ensure(self) -> Certificates:
        secret = await self._read()
        if secret is None:
            secret = await self._create()
        found, wrong = self._check(secret)
        if not wrong:
            return found
        logger.info("renewing the webhook certificates of Secret %s/%s: %s", self._namespace, self._secret, wrong)
        return await self._renew(secret, found)

    async def _read(self) -> Secret | None:
        try:
            return await self._client.get(SECRETS, self._secret, self._namespace)
        except ApiStatusError as error:
            if error.is_not_found:
                return None
            raise

    async def _create(self) -> Secret:
        """Create the Secret, or return the one that another replica has created in the meantime."""
        made = await asyncio.to_thread(make_certificates, self._name, self._clock.now())
        document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._secret, "namespace": self._namespace},
            "data": _data(made),
        }
        try:
            secret = await self._client.create(SECRETS, document, self._namespace)
        except ApiStatusError as error:
            if error.is_not_found:
                raise NotInstalledError(missing_namespace(self._namespace, f"the Secret {self._secret}")) from error
            if not error.is_already_exists:
                raise
            return await self._client.get(SECRETS, self._secret, self._namespace)
        logger.info("made webhook certificates in Secret %s/%s", self._namespace, self._secret)
        return secret

    async def _renew(self, secret: Secret, found: Certificates) -> Certificates:
        """Replace the certificates, unless another replica has done so since they were read: then use theirs."""
        made = await asyncio.to_thread(make_certificates, self._name, self._clock.now(), found)
        version = secret.metadata.resource_version
        patch = {"metadata": {"resourceVersion": version}, "data": _data(made)}
        try:
            await self._client.patch(SECRETS, self._secret, patch, PatchType.MERGE, self._namespace)
        except ApiStatusError as error:
            if not error.is_conflict:
                raise
            theirs, wrong = self._check(await self._client.get(SECRETS, self._secret, self._namespace))
            if wrong:
                raise
            return theirs
        return made

    def _check(self, secret: Secret) -> tuple[Certificates, str]:
        found = from_files({name: _decoded(text) for name, text in secret.data.items()})
        return found, fault(found, self._name, self._clock.now())


def _data(certificates: Certificates) -> dict[str, str]:
    return {name: base64.b64encode(content).decode("ascii") for name, content in to_files(certificates).items()}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
