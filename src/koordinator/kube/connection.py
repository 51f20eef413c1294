"""From configuration to a connection: which server, whom to trust, who we are.

An explicit kubeconfig wins, then ``$KUBECONFIG``, then the service account of the pod that we run in, then
``~/.kube/config``; an address given as master replaces the cluster's server, or is enough by itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import msgspec

from koordinator.kube import kubeconfig
from koordinator.kube.errors import KubeconfigError
from koordinator.kube.kubeconfig import Cluster, Context, Kubeconfig, User
from koordinator.kube.proxy import SCHEMES
from koordinator.kube.tls import KeyPair, TLSSettings
from koordinator.kube.transport import Endpoint

# Which HTTP proxy, if any, stands between us and the API server: decided once, by Go's rules for the environment.


def check_proxy(url: str, where: str) -> str:
    """``url`` if we can use it. Raises KubeconfigError naming ``where``."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise KubeconfigError(
            f"{where}: {_without_password(parts)!r} is not usable: write http://HOST:PORT, https://… or socks5://…"
        )
    return url


def environment_proxy(server: str, environment: Mapping[str, str]) -> str:
    """The proxy of HTTPS_PROXY or HTTP_PROXY for ``server``, unless NO_PROXY or a loopback address excludes it."""
    parts = urlsplit(server)
    name = f"{parts.scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name) or ""
    if not proxy or _excluded(parts, environment.get("NO_PROXY") or environment.get("no_proxy") or ""):
        return ""
    return check_proxy(proxy if "://" in proxy else f"http://{proxy}", f"environment variable {name.upper()}")


def _excluded(server: SplitResult, exclusions: str) -> bool:
    host = (server.hostname or "").lower()
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    port = server.port or (443 if server.scheme == "https" else 80)
    return any(_matches(entry.strip().lower(), host, address, port) for entry in exclusions.split(",") if entry.strip())


def _matches(entry: str, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int) -> bool:
    """One entry: ``*``, an address range, or a host or domain with an optional port."""
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, _, wanted_port = entry.partition(":") if entry.count(":") == 1 else (entry, "", "")
    if wanted_port and wanted_port != str(port):
        return False
    domain = name.removeprefix("*").removeprefix(".")
    return host.endswith("." + domain) or (host == domain and not name.startswith((".", "*.")))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _without_password(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.hostname or ''}"


_SERVICE_ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True)
class Connection:
    """All that is needed to speak to one API server. ``tls`` is None on plain HTTP, where no credentials are sent."""

    endpoint: Endpoint
    tls: TLSSettings | None
    cluster: Cluster
    user: User
    namespace: str
    source: str


def resolve(
    path: str = "",
    context: str = "",
    master: str = "",
    *,
    environment: Mapping[str, str],
    root: Path = Path("/"),
) -> Connection:
    """Find the configuration and check it. Raises KubeconfigError. ``root`` is where the filesystem begins."""
    if path:
        return from_kubeconfig(kubeconfig.load_explicit(Path(path)), context, master, environment)
    in_cluster = bool(environment.get("KUBERNETES_SERVICE_HOST"))
    if in_cluster and not environment.get("KUBECONFIG"):
        return from_service_account(environment, root, master)
    config = kubeconfig.load(kubeconfig.search_paths(environment))
    if not config.sources and not master:
        raise KubeconfigError(
            "no configuration of an API server: give --kubeconfig or --master, set KUBECONFIG, or run in a pod"
        )
    return from_kubeconfig(config, context, master, environment)


def from_service_account(environment: Mapping[str, str], root: Path, master: str = "") -> Connection:
    """The identity that Kubernetes gives each pod."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    server = master or f"https://{f'[{host}]' if ':' in host else host}:{port}"
    folder = root / _SERVICE_ACCOUNT
    cluster = Cluster(server=server, certificate_authority=str(folder / "ca.crt"))
    namespace = _read_namespace(folder / "namespace")
    return _connection(cluster, User(token_file=str(folder / "token")), namespace, "service account", environment)


def _read_namespace(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def from_kubeconfig(config: Kubeconfig, context: str, master: str, environment: Mapping[str, str]) -> Connection:
    """The connection of a context, the current one unless named."""
    name = context or config.current_context
    source = f"kubeconfig {config.source}"
    if not name:
        if not master:
            raise KubeconfigError(f"{source}: current-context is not set and no context was named")
        return _connection(Cluster(server=master), User(), "", source, environment)
    chosen = config.contexts.get(name)
    if chosen is None:
        raise KubeconfigError(f"{source}: there is no context {name!r} among {sorted(config.contexts)}")
    source = f"{source}, context {name!r}"
    cluster = _cluster_of(config, chosen, source, master)
    return _connection(cluster, _user_of(config, chosen, source), chosen.namespace, source, environment)


def _cluster_of(config: Kubeconfig, context: Context, source: str, master: str) -> Cluster:
    cluster = config.clusters.get(context.cluster)
    if cluster is None and not master:
        raise KubeconfigError(f"{source}: cluster: there is no cluster {context.cluster!r} in clusters")
    cluster = cluster or Cluster()
    if not (master or cluster.server):
        raise KubeconfigError(f"{source}: cluster {context.cluster!r}: server is not set")
    return msgspec.structs.replace(cluster, server=master or cluster.server)


def _user_of(config: Kubeconfig, context: Context, source: str) -> User:
    user = config.users.get(context.user) if context.user else User()
    if user is None:
        raise KubeconfigError(f"{source}: user: there is no user {context.user!r} in users")
    where = f"{source}: user {context.user!r}"
    if user.auth_provider is not None:
        raise KubeconfigError(f"{where}: auth-provider is no longer supported: use exec")
    for certificate, key in (("client_certificate", "client_key"), ("client_key", "client_certificate")):
        if _any_form(user, certificate) and not _any_form(user, key):
            raise KubeconfigError(f"{where}: {certificate.replace('_', '-')} without {key.replace('_', '-')}")
    if user.token and (user.username or user.password):
        raise KubeconfigError(f"{where}: both token and username/password are set: only one way to sign in is allowed")
    return user


def _any_form(user: User, field: str) -> bool:
    return bool(getattr(user, field) or getattr(user, f"{field}_data"))


def _connection(
    cluster: Cluster, user: User, namespace: str, source: str, environment: Mapping[str, str]
) -> Connection:
    tls = _tls(cluster, user, source)
    url = _server_url(cluster.server, tls, source)
    secure = url.startswith("https://")
    proxy = check_proxy(cluster.proxy_url, f"{source}: proxy-url") if cluster.proxy_url else ""
    return Connection(
        endpoint=Endpoint(
            url=url,
            proxy=proxy or environment_proxy(url, environment),
            server_name=cluster.tls_server_name if secure else "",
        ),
        tls=tls if secure else None,
        cluster=cluster,
        user=user if secure else _impersonation_only(user),
        namespace=namespace or "default",
        source=source,
    )


def _server_url(server: str, tls: TLSSettings, source: str) -> str:
    if "://" not in server:
        # As client-go: an address without a scheme is plain HTTP unless there is something to do TLS with.
        server = ("https://" if tls != TLSSettings() else "http://") + server
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise KubeconfigError(f"{source}: server {server!r} is not usable: write https://HOST:PORT")
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")


def _impersonation_only(user: User) -> User:
    return User(
        impersonate=user.impersonate,
        impersonate_uid=user.impersonate_uid,
        impersonate_groups=user.impersonate_groups,
        impersonate_extra=user.impersonate_extra,
    )


def _tls(cluster: Cluster, user: User, source: str) -> TLSSettings:
    authority = cluster.certificate_authority_data
    if cluster.insecure_skip_tls_verify and (authority or cluster.certificate_authority):
        raise KubeconfigError(
            f"{source}: insecure-skip-tls-verify is set together with a certificate-authority: only one is allowed"
        )
    return TLSSettings(
        # Data wins over a file, in kubeconfig and here.
        authority_file="" if authority else cluster.certificate_authority,
        authority=kubeconfig.decode_data(authority, f"{source}: certificate-authority-data"),
        insecure=cluster.insecure_skip_tls_verify,
        key_pair=_key_pair(user, source),
    )


def _key_pair(user: User, source: str) -> KeyPair | None:
    if not _any_form(user, "client_certificate"):
        return None
    return KeyPair(
        certificate_file="" if user.client_certificate_data else user.client_certificate,
        key_file="" if user.client_key_data else user.client_key,
        certificate=kubeconfig.decode_data(user.client_certificate_data, f"{source}: client-certificate-data"),
        key=kubeconfig.decode_data(user.client_key_data, f"{source}: client-key-data"),
    )
