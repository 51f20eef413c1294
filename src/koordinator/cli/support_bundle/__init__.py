"""``koord support-bundle``: what a report of a problem needs, in one file, without secrets."""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from koordinator.api.installation import NAMESPACE
from koordinator.base.build import version_line
from koordinator.base.clock import Clock, SystemClock
from koordinator.cli.arguments import whole_number
from koordinator.cli.explain import add_sources, sources_of
from koordinator.cli.explain_cluster import Cluster, seconds
from koordinator.cli.explain_failure import explain_error
from koordinator.cli.explain_target import parse_target
from koordinator.cli.explanation import Sources
from koordinator.cli.output_forms import JSON, TEXT, YAML, add_namespace, add_output
from koordinator.cli.query import Answer, Ask, run_query
from koordinator.cli.session import Session
from koordinator.cli.support_bundle.anonymity import Names
from koordinator.cli.support_bundle.archive import Archive
from koordinator.cli.support_bundle.cluster_parts import PROGRAMS, ClusterParts, items
from koordinator.cli.support_bundle.collector import Collector, Content, Part
from koordinator.cli.support_bundle.program_parts import (
    explanations,
    pages_of_programs,
    parts_of_folder,
    started_before,
    status_of_cluster,
)
from koordinator.cli.support_bundle.redaction import Redactor
from koordinator.cli.version import facts
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import ApiStatusError, KubeError

_SECONDS: Final = 120.0
_MEGABYTES: Final = 64
_LINES: Final = 5000
_PODS: Final = 20
_DESCRIPTION = """\
Gather what a report of a problem needs into one file that you can look through and attach: versions, the installed
objects and their conditions, events, configuration, health, metrics, what the programs explain of pending pods, and
the last lines of their logs. Nothing is written to the cluster, and nothing leaves this machine. Without options, the
cluster is that of kubectl (KUBECONFIG, else ~/.kube/config), else that of the `koord up` that runs on this machine.

No Secret is read. Passwords, tokens, keys, values of environment variables, command lines of containers that are not
ours, and what kubectl has last applied are removed from everything else. --anonymize also replaces the names of pods,
namespaces, nodes and other objects, images and addresses, the same one by the same everywhere; labels and annotations
of others are dropped. Look at the file before you send it: only you know what else is confidential.

What you may not read is left out, and index.md in the file says so with the permission that is missing.
"""
_EPILOG = """\
examples:
  koord support-bundle                           into koord-support-DATE-TIME.tar.gz in this folder
  koord support-bundle --pod shop/web-0          and all about a pod: why it is where it is, its events (also: --node)
  koord support-bundle --anonymize               with other names for pods, namespaces, nodes, images and addresses
  koord support-bundle --context production --log-lines 500 --file /tmp/report.tar.gz
  koord support-bundle -o json | jq -r '.leftOut[] | .path + ": " + .reason'
                                                 what could not be read, and why
  tar -xzOf koord-support-*.tar.gz --wildcards '*/index.md'
                                                 what is in it (docs/support-bundle.md)

exit status: 0 there is a file, even if parts are left out; 1 the cluster cannot be queried, or the file cannot be
written; 2 a wrong command or kubeconfig; 4 not signed in; 130 interrupted: there is no file then
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "support-bundle",
        help="gather what a report of a problem needs into one file, without secrets",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--file", type=Path, metavar="FILE", help="where to write it (default: koord-support-DATE-TIME.tar.gz)"
    )
    parser.add_argument(
        "--pod", action="append", default=[], metavar="[NAMESPACE/]NAME", help="a pod to tell all about; repeatable"
    )
    parser.add_argument("--node", action="append", default=[], metavar="NAME", help="a node, likewise; repeatable")
    add_namespace(parser, "that of --pod")
    parser.add_argument("--anonymize", action="store_true", help="replace the names of what is yours")
    parser.add_argument(
        "--installation",
        default=NAMESPACE,
        metavar="NAMESPACE",
        help="where the programs are installed (default: %(default)s)",
    )
    for flag, default, metavar, says in (
        ("--log-lines", _LINES, "LINES", "of each log, from its end"),
        ("--log-pods", _PODS, "N", "of how many of our pods logs are read, those that do badly first"),
        ("--pending", 10, "N", "how many pending pods are explained, those that wait longest first"),
        ("--max-megabytes", _MEGABYTES, "N", "of all files before compression; what does not fit is left out"),
    ):
        least = 0 if flag in ("--pending", "--log-pods") else 1
        parser.add_argument(
            flag, type=whole_number(least), default=default, metavar=metavar, help=f"{says} (default: %(default)s)"
        )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=_SECONDS,
        metavar="SECONDS",
        help="for all of it; what is not read by then is left out (default: %(default)g)",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing about each part on standard error")
    add_output(parser, TEXT, JSON, YAML)
    add_sources(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Gather, and print the path of the file; the exit status is documented in the help."""
    return run_query(options, lambda _: _question(options, SystemClock()))


def _question(options: argparse.Namespace, clock: Clock) -> Ask:
    pods = [parse_target(("pod", each), options.namespace) for each in options.pod]
    nodes = [parse_target(("node", each), None).name for each in options.node]
    sources = sources_of(options)
    usual = sources.cluster.namespace if sources.cluster is not None else "default"
    wanted = [(pod.namespace or usual, pod.name) for pod in pods]

    async def ask(session: Session) -> Answer:
        client = await _client(session, sources.cluster)
        now = clock.now()
        path = options.file or Path(f"koord-support-{now:%Y%m%d-%H%M%S}.tar.gz")
        with Archive(path, now, options.max_megabytes << 20) as archive:
            bundle = _Bundle(options, sources, session, client, archive, clock)
            await bundle.gather(wanted, nodes)
            archive.finish(bundle.head(now), bundle.removed())
        return _answer(archive)

    return ask


async def _client(session: Session, cluster: Cluster | None) -> KubeClient | None:
    """None where there is only the folder of a koord up. Raises ExplainError for a cluster that is not there; that of a
    koord up may have ended, and its logs say why."""
    if cluster is None or cluster.client is None:
        return None
    try:
        client = await session.client(cluster.client)
        if cluster.data is None:
            await client.raw("GET", "/version")
    except KubeError as error:
        if isinstance(error, ApiStatusError) and not error.is_unauthorized:
            return client
        raise explain_error(error, cluster.name, cluster.client.timeout_seconds) from error
    return client


class _Bundle:
    """One bundle, while it is gathered."""

    def __init__(
        self,
        options: argparse.Namespace,
        sources: Sources,
        session: Session,
        client: KubeClient | None,
        archive: Archive,
        clock: Clock,
    ) -> None:
        self._options = options
        self._sources = sources
        self._session = session
        self._clock = clock
        self._names = Names({options.installation, *PROGRAMS}) if options.anonymize else None
        self._redactor = Redactor(Path.home())
        # A fourth at most, so that one long listing does not keep all others out.
        most_bytes = (options.max_megabytes << 20) // 4
        self._collector = Collector(
            archive, self._redactor, self._names, most_bytes, 0.0, _silent if options.quiet else _said
        )
        self._parts = (
            ClusterParts(client, options.installation, options.log_lines, options.log_pods, most_bytes)
            if client is not None
            else None
        )

    async def gather(self, pods: list[tuple[str, str]], nodes: list[str]) -> None:
        """What others need first: what is installed, since its secrets are removed from logs."""
        self._collector.deadline = asyncio.get_running_loop().time() + self._options.timeout
        await self._learn(pods, nodes)
        await self._collector.collect(
            [Part("versions.json", "of koord, Python and this machine", _versions, public=True)]
        )
        cluster, parts = self._sources.cluster, self._parts
        if cluster is not None and cluster.data is not None:
            await self._collector.collect(parts_of_folder(cluster.data, self._clock, self._options.log_lines))
        if parts is not None:
            (installed, *_) = await self._collector.collect(parts.installed())
            stored = parts.stored()
            found = dict(zip((part.path for part in stored), await self._collector.collect(stored), strict=True))
            if cluster is not None and cluster.data is None:
                await self._collector.collect([status_of_cluster(cluster, self._clock)])
            pending = items(found["cluster/pending-pods.json"])
            pods = list(dict.fromkeys([*pods, *started_before(pending, self._options.pending)]))
            await self._collector.collect(parts.named(pods, nodes))
            await self._collector.collect(parts.logs(installed, nodes))
        await self._collector.collect(
            [*pages_of_programs(self._session, self._sources), *explanations(self._session, self._sources, pods, nodes)]
        )

    async def _learn(self, pods: list[tuple[str, str]], nodes: list[str]) -> None:
        """The names that are to be replaced, before anything is written."""
        names = self._names
        if names is None:
            return
        host = socket.gethostname()
        for each in (host, host.partition(".")[0]):
            names.learn_text("machine", each)
        cluster = self._sources.cluster
        if cluster is not None and cluster.data is None:
            for text in (cluster.name, cluster.server, urlsplit(cluster.server).hostname or ""):
                names.learn_text("cluster", text)
            names.learn_text("context", cluster.context)
        # Those that were asked for stand in the index even where their cluster cannot be read.
        for kind, name in (*(pair for pod in pods for pair in zip(("namespace", "pod"), pod, strict=True)),
                           *(("node", node) for node in nodes)):  # fmt: skip
            names.learn(kind, name)
        if self._parts is None:
            names.unknown = "there is no API server that would list them"
            return
        try:
            async with asyncio.timeout_at(self._collector.deadline):
                await self._parts.learn(names)
        except TimeoutError:
            names.unknown = "time was up before all of them were read: --timeout"

    def head(self, now: datetime) -> str:
        """How the index begins."""
        cluster = self._sources.cluster
        of = f"Of {cluster.name}.\n" if cluster is not None and self._names is None else ""
        return (
            f"# Support bundle\n\nMade by `{version_line('koord')}` at {now.isoformat(timespec='seconds')}.\n{of}"
            "docs/support-bundle.md says what is in it, and what is not. Look through it before you send it.\n"
        )

    def removed(self) -> list[str]:
        """What the index says of it."""
        counts = self._redactor.counts
        said = [f"{what}: {count} times" for what, count in sorted(counts.items()) if count]
        if self._names is not None:
            said.append("names of objects, images and addresses: replaced everywhere, the same by the same")
        return said or ["nothing: no rule has found anything"]


async def _versions() -> Content:
    return Content(facts())


def _answer(archive: Archive) -> Answer:
    document = {
        "file": str(archive.path),
        "files": [
            {"path": each.path, "what": each.says, "bytes": each.size, "note": each.note} for each in archive.entries
        ],
        "leftOut": [{"path": each.path, "what": each.says, "reason": each.reason} for each in archive.left_out],
    }
    count = len(archive.left_out)
    note = f"{count} parts are left out; index.md in the file says why" if count else ""
    return Answer(document, partial(_path_line, archive.path), note=note)


def _path_line(path: Path) -> str:
    return f"{path}\n"


def _said(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _silent(_: str) -> None:
    """With --quiet."""
