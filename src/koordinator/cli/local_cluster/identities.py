"""Who the programs of a local cluster are where roles decide: each has a ServiceAccount with the rights that it has on
real clusters, and a kubeconfig with a token of it."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from koordinator.api.codec import decode_any
from koordinator.api.installation import NAMESPACE
from koordinator.api.kinds import Kind
from koordinator.api.manifests.installation import Installation, manifest_files
from koordinator.api.meta import Object
from koordinator.cli.local_cluster.ensure import ensure
from koordinator.cli.local_cluster.programs import ACCOUNTS, LocalClusterOptions, shipped_file
from koordinator.cluster.data_folder import write_private
from koordinator.cluster.kubeconfig_file import kubeconfig
from koordinator.kube.client import KubeClient

_RBAC: Final = "rbac.authorization.k8s.io"
_ACCOUNTS: Final = Kind("", "v1", "serviceaccounts", "ServiceAccount", Object)
_KINDS: Final = {
    kind.name: kind
    for kind in (
        _ACCOUNTS,
        Kind(_RBAC, "v1", "roles", "Role", Object),
        Kind(_RBAC, "v1", "rolebindings", "RoleBinding", Object),
        Kind(_RBAC, "v1", "clusterroles", "ClusterRole", Object, namespaced=False),
        Kind(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", Object, namespaced=False),
    )
}
_LIFETIME: Final = 10 * 365 * 24 * 3600
"""Seconds. A token is made at each start, and is good for longer than any ``koord up`` runs."""


async def give_identities(client: KubeClient, options: LocalClusterOptions, names: Iterable[str]) -> None:
    """The accounts and roles of all programs, and for each of ``names`` a kubeconfig. ``client`` is the
    administrator's. Raises KubeError and OSError."""
    for document in _documents():
        fields = [field for field in ("rules", "subjects", "aggregationRule") if field in document]
        namespace = document["metadata"].get("namespace", "")
        await ensure(client, _KINDS[document["kind"]], document, namespace=namespace, update=fields)
    cluster = yaml.safe_load(options.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"])
    for name in names:
        if (account := ACCOUNTS.get(name)) is not None:
            text = kubeconfig(cluster["server"], authority, await _token(client, account), user=account)
            path = options.kubeconfig_of(name)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_private(path, text.encode())


def _documents() -> Iterator[dict[str, Any]]:
    texts = [*manifest_files(Installation(), ("rbac", "recommender", "feature-gates")).values()]
    for text in (*texts, shipped_file("local_roles.yaml").read_text()):
        yield from yaml.safe_load_all(text)


async def _token(client: KubeClient, account: str) -> str:
    body = f'{{"spec":{{"expirationSeconds":{_LIFETIME}}}}}'.encode()
    response = await client.raw("POST", _ACCOUNTS.path(NAMESPACE, account, "token"), body)
    token: str = decode_any(response)["status"]["token"]
    return token


def remove_identities(folder: Path) -> None:
    """The kubeconfigs of a cluster that has stopped; their tokens would be good at its next start."""
    for path in folder.glob("*.kubeconfig"):
        path.unlink()
