"""The webhook settings from environment variables: serving address, host name, and where certificates are kept.

The original takes these from the environment, not from flags, so that manifests of it start this program unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordinator.api import installation
from koordinator.base.errors import ConfigurationError
from koordinator.base.listen_address import LAST_PORT

FILE_WRITER: Final = "fs"
SECRET_WRITER: Final = "secret"  # noqa: S105 - a kind of writer
MUTATING_VARIABLE: Final = "MUTATING_WEBHOOK_NAME"
VALIDATING_VARIABLE: Final = "VALIDATING_WEBHOOK_NAME"
_WRITERS: Final = ("", FILE_WRITER, SECRET_WRITER)


@dataclass(frozen=True, slots=True)
class WebhookEnvironment:
    """The variables, with the original's defaults."""

    port: int = installation.WEBHOOK_PORT
    host: str = ""
    """A name or address at which API servers reach the webhooks; empty where they go through the Service."""
    certificate_folder: Path = Path("/tmp/koordinator-webhook-certs")  # noqa: S108 - the original's default
    certificate_writer: str = ""
    namespace: str = installation.NAMESPACE
    service: str = installation.WEBHOOK_SERVICE
    secret: str = installation.WEBHOOK_CERTIFICATES
    mutating_configuration: str = installation.MUTATING_CONFIGURATION
    validating_configuration: str = installation.VALIDATING_CONFIGURATION

    @property
    def certified_name(self) -> str:
        """The DNS name or address that the serving certificate must be valid for."""
        return self.host or f"{self.service}.{self.namespace}.svc"

    @property
    def writes_files_only(self) -> bool:
        """Whether certificates are kept in the folder alone, instead of in a Secret that all replicas share."""
        if self.certificate_writer:
            return self.certificate_writer == FILE_WRITER
        return bool(self.host)


def read_environment(variables: Mapping[str, str]) -> WebhookEnvironment:
    """Parse the variables; an empty one counts as absent. Raises ConfigurationError naming the variable."""
    default = WebhookEnvironment()

    def text(name: str, otherwise: str) -> str:
        return variables.get(name) or otherwise

    return WebhookEnvironment(
        port=_port(variables, default.port),
        host=variables.get("WEBHOOK_HOST", ""),
        certificate_folder=Path(text("WEBHOOK_CERT_DIR", str(default.certificate_folder))),
        certificate_writer=_writer(variables),
        namespace=text("POD_NAMESPACE", default.namespace),
        service=text("SERVICE_NAME", default.service),
        secret=text("SECRET_NAME", default.secret),
        mutating_configuration=text(MUTATING_VARIABLE, default.mutating_configuration),
        validating_configuration=text(VALIDATING_VARIABLE, default.validating_configuration),
    )


def _port(variables: Mapping[str, str], default: int) -> int:
    text = variables.get("WEBHOOK_PORT", "")
    if not text:
        return default
    try:
        port = int(text)
    except ValueError:
        port = 0
    if not 1 <= port <= LAST_PORT:
        raise ConfigurationError("environment variable WEBHOOK_PORT", text, f"a port from 1 to {LAST_PORT}")
    return port


def _writer(variables: Mapping[str, str]) -> str:
    text = variables.get("WEBHOOK_CERT_WRITER", "")
    if text not in _WRITERS:
        allowed = f"{FILE_WRITER} or {SECRET_WRITER}; empty takes {FILE_WRITER} where WEBHOOK_HOST is set"
        raise ConfigurationError("environment variable WEBHOOK_CERT_WRITER", text, allowed)
    return text
