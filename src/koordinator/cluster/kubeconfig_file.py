"""The kubeconfig of a local cluster: written where the user wants it, and never over something that is not ours.

A file is ours when nothing is in it but what this module writes, for whatever address, authority and token, and what
``kubectl config set-context --current --namespace`` adds. Merging into a file of the user would lose its comments,
and removing our entries again would mean to write it a second time. kubectl merges what KUBECONFIG lists by itself.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

import yaml

from koordinator.api.document import Document
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.access.identity import ADMIN
from koordinator.cluster.data_folder import sync_folder, write_private

_CLUSTER: Final = "koordinator"
_USER: Final = ADMIN.name
_HEADER: Final = (
    "# Access to a local cluster of koordinator, which replaces this file as long as nothing else is in it.\n"
)


class ForeignKubeconfig(KoordinatorError):
    """The file is left as it is; the text is one sentence that says why, and what to do."""


def kubeconfig(url: str, authority: bytes, token: str, namespace: str = "", user: str = _USER) -> str:
    """YAML for kubectl and every client-go program; ``authority`` is PEM."""
    context = {"cluster": _CLUSTER, **({"namespace": namespace} if namespace else {}), "user": user}
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(authority).decode()}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _CLUSTER, "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": _CLUSTER, "context": context}],
        "current-context": _CLUSTER,
    }
    return _HEADER + yaml.safe_dump(document, sort_keys=False)


def check_kubeconfig(path: Path) -> None:
    """Raises ForeignKubeconfig when ``write_kubeconfig`` would."""
    _own(path)


def write_kubeconfig(path: Path, url: str, authority: bytes, token: str) -> None:
    """Replace what is ours, readable by the owner alone; the default namespace of its context is kept.

    Raises ForeignKubeconfig when something else is there, or the file cannot be written.
    """
    text = kubeconfig(url, authority, token, _namespace(_own(path)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, text.encode())
    except OSError as error:
        raise ForeignKubeconfig(f"kubeconfig {path} cannot be written: {error.strerror}; name another file") from error


def remove_kubeconfig(path: Path) -> None:
    """Remove the file if it is ours, or there. Raises ForeignKubeconfig when something else is."""
    if _own(path) is None:
        return
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def _own(path: Path) -> Document | None:
    """What is there; empty for an empty file, None when there is none. Raises ForeignKubeconfig."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ForeignKubeconfig(f"kubeconfig {path} cannot be read: {error}; name another file") from error
    if not text.strip():
        return {}
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        document = None
    if not _is_ours(document) or _has_comments(text):
        raise ForeignKubeconfig(
            f"kubeconfig {path} holds more than a local cluster's access and is left as it is; name another file with "
            f"--kubeconfig, and use both with KUBECONFIG={path}:OTHER"
        )
    assert isinstance(document, dict)
    return document


def _has_comments(text: str) -> bool:
    # None of the values that we write has a "#", which would be one of theirs.
    return "#" in text.removeprefix(_HEADER)


def _is_ours(document: Any) -> bool:
    match document:
        case {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "koordinator", "cluster": dict() as cluster, **cluster_rest}],
            "users": [{"name": "admin", "user": dict() as user, **user_rest}],
            "contexts": [{"name": "koordinator", "context": dict() as context, **context_rest}],
            "current-context": str(),
            **rest,
        }:
            return (
                not (cluster_rest or user_rest or context_rest)
                and rest in ({}, {"preferences": {}})
                and cluster.keys() == {"server", "certificate-authority-data"}
                and user.keys() == {"token"}
                and context.keys() - {"namespace"} == {"cluster", "user"}
            )
    return False


def _namespace(document: Document | None) -> str:
    if not document:
        return ""
    namespace: str = document["contexts"][0]["context"].get("namespace") or ""
    return namespace
