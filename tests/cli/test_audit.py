"""What ``koord audit`` prints of the records that koord-manager has, and what ``koord explain pod`` takes from them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from koordinator.api.audit_answer import AUDIT_PATH, AuditAnswer, Coverage, Drop, Gap
from koordinator.api.kinds import PODS
from koordinator.api.modification import EVICTED, MOVED, Cause, Modification, Subject
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.cli.audit import question
from koordinator.cli.audit_source import coverage_sentences
from koordinator.cli.explain_terminal import Terminal
from koordinator.cli.main import main, make_parser
from koordinator.cli.session import open_session
from koordinator.kube.serving import HealthServer
from koordinator.manager.audit.query_page import audit_page
from koordinator.manager.audit.store import AuditStore, Query, ReceivedRecord
from tests.cli.explained_cluster import ExplainedCluster, explained_cluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@dataclass
class Audit:
    """The store of a manager, which serves it at ``url``."""

    url: str = ""
    store: AuditStore = field(default_factory=lambda: AuditStore("", 1 << 20, timedelta(days=10_000)))

    def __post_init__(self) -> None:
        self.store.open()

    async def find(self, query: Query) -> AuditAnswer:
        return self.store.find(query, NOW)

    def add(self, name: str, minutes: float = 0, **fields: Any) -> None:
        about = Subject(kind="Pod", namespace="shop", name=name)
        time, cause = NOW + minutes * MINUTE, Cause(code="MemoryEvict", text="too little memory")
        given = {"program": "koordlet", "action": EVICTED, "node": "n1", "object": about, "time": time, "cause": cause}
        record = Modification(**{**given, **fields})
        self.store.add([ReceivedRecord(f"{name}{minutes}", f"shop/{name}.{minutes}", record)], NOW)

    def server(self) -> HealthServer:
        server = HealthServer(Metrics())
        server.add_route(AUDIT_PATH, audit_page(self.find))
        return server


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainedCluster]:
    with explained_cluster(tmp_path_factory.mktemp("audit")) as found:
        yield found


@pytest.fixture
def audit(cluster: ExplainedCluster) -> Iterator[Audit]:
    made = Audit()
    server = made.server()
    cluster.do(server.start())
    made.url = f"http://127.0.0.1:{server.bound_port}"
    yield made
    cluster.do(server.stop())


def test_records_are_listed_the_oldest_first(audit: Audit, capsys: pytest.CaptureFixture[str]) -> None:
    audit.add("late", 5)
    audit.add("early")
    assert main(["audit", f"--manager={audit.url}", "--since=2026-01-01T00:00:00Z"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["at", "program", "action", "object", "node", "why"]
    assert [row.split()[3] for row in rows] == ["pod/shop/early", "pod/shop/late"]
    assert rows[0].endswith("too little memory")


def test_json_lines_have_one_record_each(audit: Audit, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(1200):
        audit.add(f"web-{number}", number)
    arguments = [f"--manager={audit.url}", "--since=2026-01-01", "-o", "jsonl", "--pod=shop/web-7"]
    assert main(["audit", *arguments[:-1]]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1200
    assert main(["audit", *arguments]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["version"], found["time"], found["event"]) == (1, "2026-01-01T00:07:00Z", "shop/web-7.7")


@pytest.mark.parametrize(
    ("flag", "problem"),
    [("--since=soon", "--since: 'soon' is neither a time"), ("--until=2020-01-01", "--until: '2020-01-01' is before")],
)
def test_a_time_that_is_none_is_named(flag: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--manager=http://127.0.0.1:1", flag]) == 2
    assert problem in capsys.readouterr().err


def test_what_may_be_missing_is_said_where_it_matters() -> None:
    coverage = Coverage(
        since=NOW,
        gaps=[Gap(since=NOW + MINUTE, until=NOW + 2 * MINUTE, why="nobody listened")],
        drops=[Drop(namespace="shop", records=3, until=NOW + MINUTE)],
        in_memory=True,
    )
    assert list(coverage_sentences(coverage, {"since": "2025-12-31T00:00:00Z"})) == [
        "records are kept since 2026-01-01T00:00:00Z, in memory: a restart of koord-manager, or another leader, "
        "forgets them.",
        "records may be missing from 2026-01-01T00:01:00Z to 2026-01-01T00:02:00Z: nobody listened.",
        "the store was full: 3 records of the namespace shop up to 2026-01-01T00:01:00Z were deleted "
        "(--audit-max-megabytes).",
    ]
    assert list(coverage_sentences(coverage, {"since": "2026-01-01T00:03:00Z"})) == []
    problem = Coverage(problem="the disk is full", lost=2, refused=1)
    assert [sentence.split(":")[0] for sentence in coverage_sentences(problem, {})] == [
        "nothing can be kept right now",
        "nothing has been kept yet.",
        "2 records were lost while nothing could be kept.",
        "1 Events carried a record that could not be taken.",
    ]


def test_watch_prints_what_has_come_since_even_if_it_comes_late() -> None:
    async def scenario() -> list[str | None]:
        audit = Audit()
        server = audit.server()
        await server.start()
        options = make_parser().parse_args(
            ["audit", "-w", "-o", "name", f"--manager=http://127.0.0.1:{server.bound_port}", "--since=1h"]
        )
        clock = ManualClock(NOW)
        ask, printed = question(options, clock, Terminal(piped=True)), list[str | None]()
        async with open_session() as session:
            for name, minutes in (("first", 0), ("second", 5), ("late", 1)):
                audit.add(name, minutes)
                printed.append((await ask(session)).changes)
            printed.append((await ask(session)).changes)
        await server.stop()
        return printed

    assert asyncio.run(scenario()) == ["pod/shop/first\n", "pod/shop/second\n", "pod/shop/late\n", ""]


def test_a_pod_that_is_gone_is_explained_by_its_last_record(
    cluster: ExplainedCluster, audit: Audit, capsys: pytest.CaptureFixture[str]
) -> None:
    audit.add("gone")
    assert main(["explain", "pod", "shop/gone", f"--manager={audit.url}", *cluster.arguments]) == 3
    text = capsys.readouterr().err
    assert "at 2026-01-01T00:00:00Z koordlet evicts it on n1 (too little memory): koord audit --pod shop/gone" in text


def test_the_timeline_of_a_pod_has_what_was_kept(
    cluster: ExplainedCluster, audit: Audit, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"nodeName": "n2", "containers": [{"name": "c", "image": "i"}]}
    cluster.create(PODS, {"metadata": {"name": "web"}, "spec": spec}, "default")
    about = Subject(kind="Pod", namespace="default", name="old")
    later = datetime.now(UTC) + timedelta(seconds=1)
    moved = {"program": "koord-descheduler", "action": MOVED, "target": "default/web", "pods": ["default/web"]}
    audit.add("web", 0, **{"object": about, "time": later, **moved})
    assert main(["explain", "pod", "web", "-o", "json", f"--manager={audit.url}", *cluster.arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    told = [(each["program"], each["what"]) for each in document["timeline"]]
    assert ("koord-descheduler", "has moved default/old, in whose place it is") in told
