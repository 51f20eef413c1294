"""Which cluster is queried: that of kubectl, or that of ``koord up`` on this machine when kubectl has none."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordinator.cli.data_folder import SCHEDULER, address_of, default_data_folder
from koordinator.cli.explain_failure import UsageError
from koordinator.cluster.data_folder import MARKER
from koordinator.kube import connection, kubeconfig
from koordinator.kube.connect import ClientOptions, user_agent
from koordinator.kube.connection import Connection
from koordinator.kube.errors import KubeError
from koordinator.kube.kubeconfig import Kubeconfig
from koordinator.kube.write_policy import ReadOnly

_KUBECONFIG: Final = "kubeconfig"


@dataclass(frozen=True, slots=True)
class Cluster:
    """One API server, and how it was found.

    ``name`` is what messages call it. ``client`` is None when only the programs of a ``koord up`` can be reached, not
    its API. ``data`` is the folder of the ``koord up`` that runs it; None for every other cluster.
    """

    name: str
    client: ClientOptions | None
    namespace: str = "default"
    context: str = ""
    server: str = ""
    data: Path | None = None

    @property
    def document(self) -> dict[str, str]:
        """For programs."""
        found = {"name": self.name, "context": self.context, "server": self.server, "namespace": self.namespace}
        return {key: value for key, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What was said about the cluster. ``seconds`` bounds each request."""

    kubeconfig: Path | None
    context: str
    data: Path | None
    seconds: float
    environment: Mapping[str, str]


def find_cluster(options: ClusterOptions) -> Cluster | None:
    """The cluster by kubectl's rules; None when there is neither one nor a folder of a ``koord up``.

    ``--kubeconfig`` is the only file then, and has to exist; else the files of KUBECONFIG are merged, or
    ``~/.kube/config`` is read; else it is the cluster whose pod this is; else that of ``koord up``. Raises
    UsageError.
    """
    try:
        if options.data is not None:
            return _local(options.data, options) or _folder_alone(options.data)
        config = _read(options)
        if config is not None:
            return _from_kubeconfig(config, options)
        if options.environment.get("KUBERNETES_SERVICE_HOST"):
            found = connection.from_service_account(options.environment, Path("/"))
            return _cluster(found, "the cluster of this pod", "", _client(options))
        folder = default_data_folder()
        if options.context:
            raise UsageError(f"--context: {options.context!r} is not usable: there is no kubeconfig")
        return _local(folder, options) or (_folder_alone(folder) if address_of(folder, SCHEDULER) else None)
    except KubeError as error:
        raise UsageError(str(error)) from error


def _read(options: ClusterOptions) -> Kubeconfig | None:
    """The files merged; None when nothing names a cluster."""
    if options.kubeconfig is not None:
        return kubeconfig.load_explicit(options.kubeconfig.expanduser())
    paths = kubeconfig.search_paths(options.environment)
    config = kubeconfig.load(paths)
    if options.environment.get("KUBECONFIG") and not config.sources:
        # The user means one cluster and would get another.
        raise UsageError(f"KUBECONFIG: there is no such file: {', '.join(map(str, paths))}")
    return config if config.contexts or config.clusters or options.context else None


def _from_kubeconfig(config: Kubeconfig, options: ClusterOptions) -> Cluster:
    found = connection.from_kubeconfig(config, options.context, "", options.environment)
    context = options.context or config.current_context
    chosen = config.contexts.get(context)
    called = chosen.cluster if chosen is not None else ""
    environment = options.environment
    if options.kubeconfig is None:
        # Of the files that were read, also when this runs in a pod, whose own cluster a client would prefer.
        environment = {**environment, "KUBECONFIG": ":".join(config.sources)}
    name = f'the cluster "{called}" (context "{context}" of {config.source}, {found.endpoint.url})'
    return _cluster(found, name, context, _client(options, environment), _folder_of(found, config))


def _folder_of(found: Connection, config: Kubeconfig) -> Path | None:
    """The folder of the ``koord up`` that runs this very API server."""
    for folder in (default_data_folder(), *(Path(source).absolute().parent for source in config.sources)):
        file = folder / _KUBECONFIG
        if address_of(folder, SCHEDULER) is not None and file.exists():
            own = kubeconfig.load_explicit(file)
            if found.endpoint.url in {cluster.server for cluster in own.clusters.values()}:
                return folder
    return None


def local_folder(named: Path | None, environment: Mapping[str, str], seconds: float = 5.0) -> Path:
    """The data folder that a command about the local cluster means: the one that is named, else that of the cluster of
    KUBECONFIG if it is one of this machine, else the usual one. Raises UsageError."""
    if named is None and environment.get("KUBECONFIG"):
        cluster = find_cluster(ClusterOptions(None, "", None, seconds, environment))
        found = folder_of_server(cluster, None, environment) if cluster is not None else None
        if found is not None:
            return found
    return (named or default_data_folder()).expanduser().absolute()


def folder_of_server(cluster: Cluster, named: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The data folder from which the API server of the cluster runs or ran: it has a kubeconfig of that server."""
    sources = [named.expanduser()] if named is not None else kubeconfig.search_paths(environment)
    for folder in (default_data_folder(), *(Path(source).absolute().parent for source in sources)):
        file = folder / _KUBECONFIG
        if not file.exists() or not (folder / MARKER).exists():
            continue
        if cluster.server in {each.server for each in kubeconfig.load_explicit(file).clusters.values()}:
            return folder
    return None


def _local(folder: Path, options: ClusterOptions) -> Cluster | None:
    """The cluster of a ``koord up`` through the kubeconfig that it wrote; None when it wrote none there."""
    file = folder / _KUBECONFIG
    if not file.exists():
        return None
    found = connection.from_kubeconfig(
        kubeconfig.load_explicit(file), options.context, "", environment=options.environment
    )
    name = f"the local cluster of koord up ({found.endpoint.url}, state in {folder})"
    client = _client(options, kubeconfig=str(file))
    return _cluster(found, name, options.context, client, folder)


def _folder_alone(folder: Path) -> Cluster:
    return Cluster(f"the local cluster of koord up (state in {folder})", None, data=folder)


def _cluster(found: Connection, name: str, context: str, client: ClientOptions, data: Path | None = None) -> Cluster:
    return Cluster(name, client, found.namespace or "default", context, found.endpoint.url, data)


def _client(
    options: ClusterOptions, environment: Mapping[str, str] | None = None, *, kubeconfig: str | None = None
) -> ClientOptions:
    named = str(options.kubeconfig.expanduser()) if options.kubeconfig is not None else ""
    return ClientOptions(
        kubeconfig=named if kubeconfig is None else kubeconfig,
        context=options.context,
        user_agent=user_agent("koord"),
        timeout_seconds=options.seconds,
        # A person waits; a server that is not there would be tried for five seconds.
        max_connection_retries=0,
        read_only=ReadOnly("this command"),
        environment=options.environment if environment is None else environment,
    )


def seconds(text: str) -> float:
    """The value of ``--request-timeout``, for argparse."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)s?", text)
    if found is None or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r}: seconds are needed, such as 15 or 2.5s")
    return float(found[1])
