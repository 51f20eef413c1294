"""What a bundle has of the programs themselves: their pages, what they explain, and on this machine their logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from koordinator.api.codec import decode_any, to_document
from koordinator.base.clock import Clock
from koordinator.cli.cluster_record import read_record
from koordinator.cli.data_folder import MANAGER, log_folder
from koordinator.cli.explain_cluster import Cluster
from koordinator.cli.explain_source import ProgramEndpoint, fetch_body
from koordinator.cli.explain_target import REBALANCE, Target
from koordinator.cli.explanation import Sources, explain
from koordinator.cli.logs import contents
from koordinator.cli.session import Session
from koordinator.cli.status_of_cluster import collect_cluster, document_of_cluster
from koordinator.cli.status_report import collect, document
from koordinator.cli.support_bundle.collector import Content, Part

_CONFIGURATION: Final = "/configz"
_PAGES: Final[tuple[tuple[str, str, dict[str, str], str], ...]] = (
    ("metrics.txt", "/metrics", {}, "its metrics"),
    ("ready.txt", "/readyz", {"verbose": "true"}, "which of its checks pass"),
    ("configuration.json", _CONFIGURATION, {}, "the configuration in force"),
    ("progress.json", "/debug/progress", {}, "how far it has followed the API, and what it still works on"),
)


def pages_of_programs(session: Session, sources: Sources) -> Iterator[Part]:
    """Of the replicas that lead."""
    for endpoint in (sources.scheduler, sources.manager, sources.descheduler):
        for file, path, query, says in _PAGES:
            if path == _CONFIGURATION and endpoint.program == MANAGER:
                # Its configuration is that of its flags, and the ConfigMaps.
                continue
            yield Part(
                f"programs/{endpoint.program}/{file}",
                f"koord-{endpoint.program}: {says}",
                partial(_page, session, endpoint, path, query),
            )


async def _page(session: Session, endpoint: ProgramEndpoint, path: str, query: Mapping[str, str]) -> Content:
    body = await fetch_body(session, endpoint, path, query)
    return Content(body.decode("utf-8", "replace") if path in ("/metrics", "/readyz") else decode_any(body))


def explanations(
    session: Session, sources: Sources, pods: Sequence[tuple[str, str]], nodes: Iterable[str]
) -> Iterator[Part]:
    """Of these pods and nodes, and of what koord-descheduler would do now."""
    for namespace, name in pods:
        yield _explained(session, sources, Target("pod", name, namespace), f"pods/{namespace}/{name}/explanation.json")
    for name in nodes:
        for kind in ("node", "interference"):
            file = "explanation.json" if kind == "node" else "interference.json"
            yield _explained(session, sources, Target(kind, name), f"nodes/{name}/{file}")
    yield _explained(session, sources, Target(REBALANCE, ""), "programs/descheduler/rebalance.json")


def _explained(session: Session, sources: Sources, target: Target, path: str) -> Part:
    command = " ".join(
        filter(None, ("koord explain", target.kind, target.name, target.namespace and f"-n {target.namespace}"))
    )

    async def read() -> Content:
        result = await explain(target, sources, session)
        note = f"from the API alone: {result.incomplete}" if result.incomplete is not None else ""
        return Content(to_document(result.document), note)

    return Part(path, f"what `{command}` says", read)


def status_of_cluster(cluster: Cluster, clock: Clock) -> Part:
    """Of one that runs elsewhere."""

    async def read() -> Content:
        return Content(document_of_cluster(await collect_cluster(cluster, clock)))

    return Part("status.json", "what `koord status` says: who leads, how many nodes report", read)


def parts_of_folder(data: Path, clock: Clock, lines: int) -> Iterator[Part]:
    """Of a koord up of this machine, whose programs are no pods."""

    async def status() -> Content:
        return Content(document(await collect(data, clock)))

    async def record() -> Content:
        found = read_record(data)
        return Content(msgspec.to_builtins(found) if found is not None else {}, ours=True)

    yield Part("status.json", "what `koord status` says: what runs, and whether it is healthy", status)
    yield Part("local-cluster.json", "the programs of the koord up, and the arguments that each has", record)
    for log in sorted(log_folder(data).glob("*.log")):
        yield Part(f"logs/{log.name}", f"the last {lines} lines of {log.stem}", partial(_log, log, lines))


async def _log(log: Path, lines: int) -> Content:
    return Content("".join(contents(log, lines, follow=False, sleep=lambda _: None)))


def started_before(pods: Iterable[Mapping[str, Any]], most: int) -> list[tuple[str, str]]:
    """Namespace and name of the pods that have waited longest."""
    last = datetime.max.isoformat()
    oldest = sorted(pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or last)
    return [(pod["metadata"].get("namespace") or "", pod["metadata"]["name"]) for pod in oldest[:most]]
