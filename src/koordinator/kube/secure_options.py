"""The flags of a secure port, without what serves it (``koordinator.kube.secure_serving``): a program in which the port
is off loads no client of an API server for it.

They are those of every Kubernetes component (``--secure-port`` and the like), so that its manifests hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from koordinator.base.errors import ConfigurationError
from koordinator.base.listen_address import NOWHERE, ListenAddress
from koordinator.base.option_flags import integer, seconds, switch, text, texts

TITLE: Final = "Serving on a cluster"
"""Of the flags in the help text."""
PORT: Final = "secure-port"
CERTIFICATE: Final = "tls-cert-file"
PRIVATE_KEY: Final = "tls-private-key-file"
PROBES: Final = ("/healthz", "/readyz", "/livez")


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """How long answers are kept, in seconds, and which paths are open: ``*`` at the end stands for all that follows."""

    token_ttl: float = 10.0
    authorized_ttl: float = 10.0
    unauthorized_ttl: float = 10.0
    open_paths: tuple[str, ...] = PROBES


@dataclass(frozen=True, slots=True)
class SecureOptions:
    """The flags."""

    port: int = integer(
        PORT,
        0,
        "Serve over HTTPS to whom the API server admits, at this port; 0 does not. Probes need no rights.",
        minimum=0,
        maximum=65535,
    )
    address: str = text("bind-address", "127.0.0.1", "Where --secure-port is; 0.0.0.0 for every address.")
    folder: str = text(
        "cert-dir",
        "",
        "A folder with the certificate tls.crt and its key tls.key, as a mounted Secret has them.",
        placeholder="folder",
    )
    certificate: str = text(
        CERTIFICATE, "", "The certificate of --secure-port; without one, the program makes one.", placeholder="file"
    )
    key: str = text(PRIVATE_KEY, "", "The key of --tls-cert-file.", placeholder="file")
    client_authority: str = text(
        "client-ca-file",
        "",
        "Clients with a certificate of these authorities are known by its name; without the flag, those of the "
        "cluster's.",
        placeholder="file",
    )
    skip_lookup: bool = switch(
        "authentication-skip-lookup", False, "Do not read the cluster's authority for clients; tokens are enough."
    )
    authentication_kubeconfig: str = text(
        "authentication-kubeconfig",
        "",
        "How to reach the API server that says whose a token is; without it, as for all else.",
        placeholder="file",
    )
    authorization_kubeconfig: str = text(
        "authorization-kubeconfig",
        "",
        "How to reach the API server that says what somebody may do; without it, as for all else.",
        placeholder="file",
    )
    open_paths: tuple[str, ...] = texts(
        "authorization-always-allow-paths", PROBES, "Paths that everybody may see; * at the end stands for the rest."
    )
    token_ttl: float = seconds(
        "authentication-token-webhook-cache-ttl", 10.0, "How long a token is good without asking again.", minimum=0.0
    )
    authorized_ttl: float = seconds(
        "authorization-webhook-cache-authorized-ttl", 10.0, "How long a right is good.", minimum=0.0
    )
    unauthorized_ttl: float = seconds(
        "authorization-webhook-cache-unauthorized-ttl", 10.0, "How long a refusal holds.", minimum=0.0
    )

    def access(self) -> AccessOptions:
        """Of whom the API server admits."""
        return AccessOptions(self.token_ttl, self.authorized_ttl, self.unauthorized_ttl, self.open_paths)

    def listen_address(self) -> ListenAddress:
        """NOWHERE without a port. Raises ConfigurationError for a certificate without its key, or the reverse."""
        if bool(self.certificate) != bool(self.key):
            missing = PRIVATE_KEY if self.certificate else CERTIFICATE
            raise ConfigurationError(f"--{missing}", "", f"--{CERTIFICATE} and --{PRIVATE_KEY} come together")
        # As in Go, this is every address of both families.
        host = "" if self.address == "::" else self.address
        return ListenAddress(host, self.port, f"--{PORT}") if self.port else NOWHERE
