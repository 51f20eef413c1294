"""kubeconfig files: read, checked and merged by client-go's rules.

With an explicit path only that file counts, and it must exist. Otherwise the files of ``$KUBECONFIG`` (or
``~/.kube/config``) are merged: absent files are skipped, the first file that has a cluster, user or context of a name
wins whole, the first non-empty current-context wins, and relative paths are relative to the file that they stand in.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from koordinator.api import codec
from koordinator.api.meta import WireStruct
from koordinator.kube.errors import KubeconfigError


class _Entry(WireStruct, rename="kebab"):
    """Base of the entries of kubeconfig files; unknown fields are ignored, as in client-go."""


class NamedExtension(_Entry):
    name: str = ""
    extension: Any = None


class Cluster(_Entry):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[NamedExtension] = []

    def exec_config(self) -> Any:
        """The cluster's extension for exec plugins (``client.authentication.k8s.io/exec``); None without one."""
        named = (item.extension for item in self.extensions if item.name == "client.authentication.k8s.io/exec")
        return next(named, None)


class ExecVariable(_Entry):
    name: str
    value: str = ""

    def __repr__(self) -> str:
        return f"ExecVariable(name={self.name!r})"


class ExecPlugin(_Entry, rename="camel"):
    """A program that prints an ExecCredential."""

    command: str = ""
    api_version: str = ""
    args: list[str] = []
    env: list[ExecVariable] = []
    interactive_mode: str = ""
    provide_cluster_info: bool = False
    install_hint: str = ""


class User(_Entry):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: list[str] = msgspec.field(default=[], name="as-groups")
    impersonate_extra: dict[str, list[str]] = msgspec.field(default={}, name="as-user-extra")
    auth_provider: Any = None
    exec: ExecPlugin | None = None

    def __repr__(self) -> str:
        """Only the names of the fields that are set: their values are secrets."""
        set_fields = [name for name in self.__struct_fields__ if getattr(self, name)]
        return f"User({', '.join(set_fields)})"


class Context(_Entry):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Entry):
    name: str
    cluster: Cluster = Cluster()


class _NamedUser(_Entry):
    name: str
    user: User = User()


class _NamedContext(_Entry):
    name: str
    context: Context = Context()


class _File(_Entry):
    api_version: str = msgspec.field(default="", name="apiVersion")
    kind: str = ""
    current_context: str = ""
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []


@dataclass(frozen=True, kw_only=True, slots=True)
class Kubeconfig:
    """The merged files. ``sources`` names them, for messages."""

    sources: tuple[str, ...]
    current_context: str
    clusters: Mapping[str, Cluster]
    users: Mapping[str, User]
    contexts: Mapping[str, Context]

    @property
    def source(self) -> str:
        return ", ".join(self.sources) or "no kubeconfig file"


NamedT = TypeVar("NamedT", _NamedCluster, _NamedUser, _NamedContext)


def search_paths(environment: Mapping[str, str]) -> list[Path]:
    """Return the files of ``$KUBECONFIG`` in order, or the one in the home directory."""
    listed = [Path(part) for part in environment.get("KUBECONFIG", "").split(":") if part]
    if listed:
        return list(dict.fromkeys(listed))
    home = environment.get("HOME", "")
    return [Path(home, ".kube", "config")] if home else []


def load(paths: Sequence[Path]) -> Kubeconfig:
    """Merge the files that exist. Raises KubeconfigError for a file that is unreadable or invalid."""
    return merge([_load_file(path) for path in paths if path.exists()])


def load_explicit(path: Path) -> Kubeconfig:
    """Read one file, which must exist."""
    if not path.exists():
        raise KubeconfigError(f"kubeconfig {path}: no such file")
    return _load_file(path)


def merge(configs: Sequence[Kubeconfig]) -> Kubeconfig:
    """Merge: for every name and for the current context, the first file that sets it takes precedence."""
    backwards = configs[::-1]
    return Kubeconfig(
        sources=tuple(source for config in configs for source in config.sources),
        current_context=next((config.current_context for config in configs if config.current_context), ""),
        clusters={name: cluster for config in backwards for name, cluster in config.clusters.items()},
        users={name: user for config in backwards for name, user in config.users.items()},
        contexts={name: context for config in backwards for name, context in config.contexts.items()},
    )


def _load_file(path: Path) -> Kubeconfig:
    file = _parse(path)
    base = path.absolute().parent
    return Kubeconfig(
        sources=(str(path),),
        current_context=file.current_context,
        clusters={
            name: _resolve_cluster(entry.cluster, base) for name, entry in _by_name(path, "clusters", file.clusters)
        },
        users={name: _resolve_user(entry.user, base) for name, entry in _by_name(path, "users", file.users)},
        contexts={name: entry.context for name, entry in _by_name(path, "contexts", file.contexts)},
    )


def _parse(path: Path) -> _File:
    # A program in a cluster has no such file, and a node agent there no other use for the library.
    import yaml

    from koordinator.base.strict_yaml import CONSTRUCTOR_ERRORS

    try:
        document = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except OSError as error:
        raise KubeconfigError(f"kubeconfig {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, *CONSTRUCTOR_ERRORS) as error:
        # PyYAML's message quotes the file, which contains secrets; the position is enough.
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise KubeconfigError(
            f"kubeconfig {path}{where}: not YAML: {getattr(error, 'problem', 'unreadable')}"
        ) from None
    try:
        file = codec.convert({} if document is None else document, _File)
    except codec.DecodeError as error:
        raise KubeconfigError(f"kubeconfig {path}: {error}") from error
    if file.kind not in ("", "Config") or file.api_version not in ("", "v1"):
        raise KubeconfigError(
            f"kubeconfig {path}: apiVersion {file.api_version!r}, kind {file.kind!r}: expected v1, Config"
        )
    return file


def _by_name(path: Path, field: str, entries: Sequence[NamedT]) -> list[tuple[str, NamedT]]:
    names = [entry.name for entry in entries]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise KubeconfigError(f"kubeconfig {path}: {field}: the name {twice!r} is given more than once")
    return list(zip(names, entries, strict=True))


def _resolve_cluster(cluster: Cluster, base: Path) -> Cluster:
    return msgspec.structs.replace(cluster, certificate_authority=_resolved(cluster.certificate_authority, base))


def _resolve_user(user: User, base: Path) -> User:
    plugin = user.exec
    # As with a shell, a bare command is looked up in PATH; one with a slash is a path, resolved like the others.
    if plugin is not None and "/" in plugin.command:
        plugin = msgspec.structs.replace(plugin, command=_resolved(plugin.command, base))
    return msgspec.structs.replace(
        user,
        client_certificate=_resolved(user.client_certificate, base),
        client_key=_resolved(user.client_key, base),
        token_file=_resolved(user.token_file, base),
        exec=plugin,
    )


def _resolved(path: str, base: Path) -> str:
    return str(base / path) if path else ""


def decode_data(text: str, where: str) -> bytes:
    """Decode a ``-data`` field. Raises KubeconfigError naming ``where``, but not the value, which may be a key."""
    try:
        return b64decode("".join(text.split()), validate=True)
    except ValueError:
        raise KubeconfigError(f"{where}: not base64") from None
