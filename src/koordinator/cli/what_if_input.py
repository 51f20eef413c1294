"""What a what-if starts from: a snapshot that is taken or read, the scheduler's configuration, and files of objects."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koordinator.api.codec import encode
from koordinator.api.document import Document
from koordinator.base.errors import ConfigurationError
from koordinator.base.strict_yaml import load_documents
from koordinator.base.yaml_lines import naming_lines
from koordinator.cli.data_folder import default_data_folder
from koordinator.cli.explain_cluster import Cluster, ClusterOptions, find_cluster
from koordinator.cli.explain_failure import ExplainError, ForbiddenError, NotFoundError, explain_error
from koordinator.cli.explain_object import read_from
from koordinator.cli.explain_source import ProgramEndpoint, fetch
from koordinator.cli.session import open_session
from koordinator.kube.connect import connected
from koordinator.kube.errors import KubeError
from koordinator.simulate.snapshot import Snapshot, load, save
from koordinator.simulate.snapshot_reader import take_snapshot

if TYPE_CHECKING:
    from koordinator.scheduler.configuration import SchedulerConfiguration

STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True)
class Source:
    """Where the snapshot comes from. ``namespace`` is that of objects that name none."""

    namespace: str
    file: Path | None
    cluster: Cluster | None
    save_to: Path | None
    seconds: float

    async def snapshot(self) -> Snapshot:
        """Taken or read; kept where ``--save`` says. Raises ExplainError and SnapshotError."""
        if self.file is not None:
            return load(self.file)
        assert self.cluster is not None
        snapshot = await _take(self.cluster, self.seconds)
        if self.save_to is not None:
            save(snapshot, self.save_to)
        return snapshot


def source_of(options: argparse.Namespace) -> Source:
    """No request is sent yet. Raises ExplainError where there is neither a file nor a cluster."""
    seconds, namespace = options.request_timeout, options.namespace
    if options.snapshot is not None:
        return Source(namespace or "default", options.snapshot, None, None, seconds)
    cluster = _cluster(options)
    return Source(namespace or cluster.namespace, None, cluster, options.save, seconds)


async def check_names(source: Source, nodes: Sequence[str]) -> None:
    """Raises NotFoundError for a node that the cluster does not have, before all of it is listed. Who may list alone
    hears of it after that."""
    if source.cluster is None:
        return
    with suppress(ForbiddenError):
        async with open_session() as session, read_from(session, source.cluster) as reader:
            for name in nodes:
                found, similar = await reader.node(name)
                if found is None:
                    like = f"; did you mean {' or '.join(similar)}?" if similar else ""
                    raise NotFoundError(f"there is no node {name} in {source.cluster.name}{like}")


def scheduler_configuration(path: Path | None) -> SchedulerConfiguration | None:
    """That of ``--scheduler-config``; None where the snapshot says it. Raises ConfigurationError."""
    return None if path is None else configuration_of_file(path)


def configuration_of_file(path: Path) -> SchedulerConfiguration:
    """Raises ConfigurationError with the line of the field."""
    # Loaded where a file is named: the scheduler takes half a second.
    from koordinator.scheduler.configuration import load_configuration

    with naming_lines(read_text(str(path)) if path.is_file() else "", str(path)):
        return load_configuration(path)


def read_objects(paths: Sequence[str]) -> list[Document]:
    """The objects of YAML or JSON files, the members of lists among them. Raises ConfigurationError."""
    found: list[Document] = []
    for path in paths:
        source = "standard input" if path == STANDARD_INPUT else path
        text = read_text(path)
        documents = load_documents(text, source)
        for document in documents:
            _check_kind(document, source)
        with naming_lines(text, source):
            for index, document in enumerate(documents):
                found += _objects(document, f"{source}: document {index + 1}")
    if not found:
        raise ConfigurationError("-f", ", ".join(paths), "a file with at least one object is needed")
    return found


def _check_kind(document: Any, source: str) -> None:
    """What another of the commands takes is a wrong command, not a wrong file."""
    command = ""
    if isinstance(document, dict):
        if list(document) == ["changes"]:
            command = "changes"
        elif document.get("kind") == "KubeSchedulerConfiguration":
            command = "config"
    if command:
        raise ConfigurationError("-f", source, f"that is a file for koord what-if {command} -f {source}")


def _objects(document: Any, where: str) -> list[Document]:
    if not isinstance(document, dict):
        raise ConfigurationError(where, document, "an object with apiVersion, kind and metadata is needed")
    if str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
        return [
            obj for index, item in enumerate(document["items"]) for obj in _objects(item, f"{where}.items[{index}]")
        ]
    for name in ("apiVersion", "kind"):
        if not isinstance(document.get(name), str) or not document[name]:
            raise ConfigurationError(f"{where}.{name}", document.get(name), "an object says what it is")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        raise ConfigurationError(f"{where}.metadata", metadata, "a name is needed")
    # Times, which YAML knows and JSON does not, become texts.
    plain: Document = _plain(document)
    return [plain]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def read_text(path: str) -> str:
    """Of a file or of standard input. Raises ConfigurationError."""
    if path == STANDARD_INPUT:
        return sys.stdin.read()
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no UTF-8 text"
        raise ConfigurationError(
            "-f", path, f"a YAML file that can be read is needed ({why[0].lower()}{why[1:]})"
        ) from error


def _cluster(options: argparse.Namespace) -> Cluster:
    cluster = find_cluster(
        ClusterOptions(options.kubeconfig, options.context, options.data, options.request_timeout, os.environ)
    )
    if cluster is None or cluster.client is None:
        raise ExplainError(
            "no cluster found: there is no kubeconfig (KUBECONFIG, ~/.kube/config), and "
            f"{default_data_folder()} is not the folder of a running koord up; --data names another, "
            "cluster with --kubeconfig, or a saved snapshot with --snapshot"
        )
    return cluster


async def _take(cluster: Cluster, seconds: float) -> Snapshot:
    assert cluster.client is not None
    try:
        async with connected(cluster.client) as client:
            snapshot = await take_snapshot(client, cluster.name, lambda: datetime.now(UTC))
    except KubeError as error:
        raise explain_error(error, cluster.name, seconds) from error
    if cluster.data is None:
        return snapshot
    configuration = await _configuration_of_local(cluster.data, seconds)
    if not configuration:
        return snapshot
    source = "the koord-scheduler of koord up (/configz)"
    return replace(snapshot, scheduler_configuration=configuration, configuration_source=source)


async def _configuration_of_local(data: Path, seconds: float) -> str:
    """The configuration that a scheduler on this machine serves; empty where none runs."""
    endpoint = ProgramEndpoint(
        url=None,
        client=None,
        lease=("", ""),
        port=0,
        data=data,
        cluster="the local cluster of koord up",
        seconds=seconds,
    )
    try:
        async with open_session() as session:
            document = await fetch(session, endpoint, "/configz")
        return encode(document["componentconfig"]).decode()
    except (ExplainError, KeyError, TypeError):
        return ""
