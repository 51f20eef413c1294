"""What only looks on, where everything wants to act: kube-apiserver's audit log has no write of it.

What is there to be done is shown by the same descheduler without ``--dry-run``, at the end.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from koordinator.api.manifests import custom_resource_definitions
from koordinator.descheduler.framework import BalancePlugin, DeschedulePlugin
from koordinator.descheduler.plugins.table import DECIDING
from tests.descheduler.clusters import PLUGIN_ARGS
from tests.real.control_plane import ControlPlane
from tests.real.koord_command import run_koord
from tests.real.polling import until
from tests.real.programs import RealPrograms

Document = dict[str, Any]
CORE: Final = "/api/v1"
PODS: Final = f"{CORE}/namespaces/default/pods"
SCHEDULING: Final = "/apis/scheduling.koordinator.sh/v1alpha1"
KINDS: Final = (
    f"{CORE}/pods",
    f"{CORE}/nodes",
    f"{CORE}/events",
    "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases",
    f"{SCHEDULING}/podmigrationjobs",
    f"{SCHEDULING}/reservations",
    f"{SCHEDULING}/drainnodes",
    f"{SCHEDULING}/drainnodegroups",
    f"{SCHEDULING}/devices",
    "/apis/slo.koordinator.sh/v1alpha1/nodemetrics",
)
SECONDS: Final = 60.0
_AT_ONCE: Final[Mapping[str, Document]] = {
    "PodLifeTime": {"maxPodLifeTimeSeconds": 1, "labelSelector": {"matchLabels": {"pod": "old"}}}
}
_ACTING: Final = ("LowNodeLoad", "PodLifeTime", "RemovePodsViolatingNodeTaints", "ScaleDownBinPack")
"""Plugins that have something to do there, whatever the others have done before them."""
_LIMITS: Final = ("maxMigratingPerNode", "maxMigratingPerWorkload", "maxUnavailablePerWorkload")
_CONFIGURATION: Final[Document] = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerConfiguration",
    "deschedulingInterval": "1s",
    "leaderElection": {"leaderElect": True, "resourceNamespace": "koordinator-system"},
    "healthzBindAddress": "127.0.0.1:0",
    "metricsBindAddress": "127.0.0.1:0",
    "profiles": [
        {
            "name": "koord-descheduler",
            "plugins": {
                point: {"enabled": [{"name": name} for name in PLUGIN_ARGS if issubclass(DECIDING[name], base)]}
                for point, base in (("balance", BalancePlugin), ("deschedule", DeschedulePlugin))
            },
            "pluginConfig": [
                *({"name": name, "args": {**args, **_AT_ONCE.get(name, {})}} for name, args in PLUGIN_ARGS.items()),
                {"name": "MigrationController", "args": dict.fromkeys(_LIMITS, 12)},
            ],
        }
    ],
}


class Books:
    """A control plane whose audit log has all requests, and a cluster in it that leaves nothing idle."""

    def __init__(self, plane: ControlPlane, log: Path, folder: Path) -> None:
        self.plane = plane
        self._log = log
        self._folder = folder

    def create(self, path: str, document: Document) -> Document:
        status, response = self.plane.request("POST", path, document)
        assert status == 201, f"{path}: {response.get('message')}"
        return response

    def writes(self, agent: str) -> list[str]:
        """Those of a program, by its user agent."""
        entries = [json.loads(line) for line in self._log.read_text().splitlines()]
        reads = ("get", "list", "watch")
        return [
            f"{entry['verb']} {entry['requestURI']}"
            for entry in entries
            if entry.get("userAgent", "").startswith(agent) and entry["verb"] not in reads
        ]

    def reads(self, agent: str) -> int:
        return sum(f'"userAgent":"{agent}' in line for line in self._log.read_text().splitlines())

    def versions(self) -> dict[str, str]:
        """The resourceVersion of everything."""
        found = {}
        for path in KINDS:
            for each in self.plane.request("GET", path)[1]["items"]:
                found[f"{path} {each['metadata']['name']}"] = each["metadata"]["resourceVersion"]
        return found

    def fill(self) -> None:
        for definition in custom_resource_definitions():
            self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        self.create(f"{CORE}/namespaces", {"metadata": {"name": "koordinator-system"}})
        paths = (SCHEDULING, "/apis/slo.koordinator.sh/v1alpha1")
        until(lambda: all(self.plane.request("GET", path)[0] == 200 for path in paths), SECONDS, "the kinds are served")
        until(lambda: all(self.plane.request("GET", path)[0] == 200 for path in KINDS), SECONDS, "they are all served")
        owner = self.create("/apis/apps/v1/namespaces/default/replicasets", _replica_set())
        nodes = ["hot", "cool", "tainted", "drained", "grouped"]
        for name in nodes:
            self._node(name, [{"key": "a", "effect": "NoSchedule"}] if name == "tainted" else [])
        for name, node in [
            *((f"web-{number}", "hot") for number in range(9)),
            *((f"on-{n}", n) for n in nodes[2:]),
            ("old", "cool"),
        ]:
            self._pod(name, node, owner)
        self._metric("hot", {f"web-{number}": "400m" for number in range(9)})
        self._metric("cool", {})
        for number, noted in enumerate(({}, {"descheduler.koordinator.sh/passed-arbitration": "true"})):
            spec = {"podRef": {"namespace": "default", "name": f"web-{number}"}, "mode": "EvictDirectly", "ttl": "5m"}
            metadata = {"name": f"job-{number}", "annotations": noted}
            self.create(f"{SCHEDULING}/podmigrationjobs", _koordinator("PodMigrationJob", metadata, spec))
        drain = _koordinator("DrainNode", {"name": "drain"}, {"nodeName": "drained"})
        self.create(f"{SCHEDULING}/drainnodes", drain)
        group = {"nodeSelector": {"matchLabels": {"pool": "grouped"}}}
        self.create(f"{SCHEDULING}/drainnodegroups", _koordinator("DrainNodeGroup", {"name": "group"}, group))

    def _node(self, name: str, taints: list[Document]) -> None:
        path = f"{CORE}/nodes"
        amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
        self.create(path, {"metadata": {"name": name, "labels": {"pool": name}}, "spec": {"taints": taints}})
        status = {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        }
        self._status(f"{path}/{name}", status)

    def _pod(self, name: str, node: str, owner: Document) -> None:
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": owner["metadata"]["uid"]}
        labels = {"app": "web", "pod": name}
        metadata = {"name": name, "labels": labels, "ownerReferences": [{**reference, "controller": True}]}
        container = {"name": "main", "image": "web", "resources": {"requests": {"cpu": "100m"}}}
        spec = {"nodeName": node, "schedulerName": "koord-scheduler", "containers": [container]}
        self.create(PODS, {"metadata": metadata, "spec": {**spec, "terminationGracePeriodSeconds": 0}})
        self._status(f"{PODS}/{name}", {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})

    def _metric(self, node: str, usages: dict[str, str]) -> None:
        path = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
        kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric"}
        self.create(path, {**kind, "metadata": {"name": node}, "spec": {}})
        pods = [
            {"name": pod, "namespace": "default", "podUsage": {"resources": {"cpu": cpu, "memory": "0"}}}
            for pod, cpu in usages.items()
        ]
        whole = {"nodeUsage": {"resources": {"cpu": f"{400 * len(usages)}m", "memory": "0"}}}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._status(f"{path}/{node}", {"updateTime": now, "nodeMetric": whole, "podsMetric": pods})

    def _status(self, path: str, status: Document) -> None:
        _, found = self.plane.request("GET", path)
        code, response = self.plane.request("PUT", f"{path}/status", {**found, "status": status})
        assert code == 200, response.get("message")

    @contextmanager
    def descheduler(self, *flags: str, configured: Document | None = None) -> Iterator[Path]:
        """All features on; gives its log."""
        path, log = self._folder / "descheduler.yaml", self._folder / "descheduler.log"
        connection = {"clientConnection": {"kubeconfig": str(self.plane.kubeconfig)}}
        path.write_text(yaml.safe_dump({**_CONFIGURATION, **connection, **(configured or {})}))
        command = [sys.executable, "-m", "koordinator.descheduler", f"--config={path}", "-v=4"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--feature-gates=NodeDrain=true", *flags], stdout=output, stderr=subprocess.STDOUT
            )
            try:
                until(lambda: "koord-descheduler" in log.read_text(), SECONDS, "it has begun")
                yield log
                process.send_signal(signal.SIGTERM)
                assert process.wait(SECONDS) == 0, log.read_text()[-3000:]
            finally:
                process.kill()
                process.wait()


def _koordinator(kind: str, metadata: Document, spec: Document) -> Document:
    return {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def _replica_set() -> Document:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "web"}]}}
    selector = {"matchLabels": {"app": "web"}}
    return {"metadata": {"name": "web"}, "spec": {"replicas": 15, "selector": selector, "template": template}}


@pytest.fixture(scope="module")
def books(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Books]:
    folder = tmp_path_factory.mktemp("dry-run")
    policy, log = folder / "policy.yaml", folder / "audit.log"
    stages = ["RequestReceived", "ResponseStarted", "Panic"]
    rules = [{"level": "Metadata"}]
    policy.write_text(
        yaml.safe_dump({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": stages, "rules": rules})
    )
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking")
    plane = ControlPlane(real_programs.kubernetes, folder / "cluster", extra_arguments=flags)
    with ExitStack() as stack:
        stack.enter_context(plane)
        made = Books(plane, log, folder)
        made.fill()
        yield made


def _cycles(log: Path) -> int:
    return log.read_text().count("Descheduling cycle done")


@pytest.mark.parametrize(
    ("flags", "configured"),
    [(["--dry-run"], {}), ([], {"dryRun": True}), (["--dry-run", "--leader-elect=false"], {})],
    ids=["flag", "configuration", "without election"],
)
def test_a_dry_run_of_koord_descheduler_writes_nothing(books: Books, flags: list[str], configured: Document) -> None:
    before = books.versions()
    with books.descheduler(*flags, configured=configured) as log:
        until(lambda: _cycles(log) >= 4, SECONDS, "four cycles")
        text = log.read_text()
    assert books.reads("koord-descheduler/") > 0
    assert books.writes("koord-descheduler/") == []
    assert books.versions() == before
    for plugin in _ACTING:
        assert f"strategy={plugin}" in text, plugin
    for said in (
        "Evicted pod in dry run mode",
        "PodMigrationJob job-0: let it through",
        "PodMigrationJob job-0: evict pod default/web-0 from node hot",
        "PodMigrationJob job-1: evict pod default/web-1 from node hot",
        "DrainNode drain of node drained: cordon its node",
        "DrainNodeGroup group: take node grouped into the group",
    ):
        assert said in text, said


def test_commands_that_only_ask_write_nothing(books: Books) -> None:
    before = books.versions()
    for command in (
        ["what-if", "drain", "hot"],
        ["what-if", "rebalance"],
        ["explain", "rebalance"],
        ["explain", "node", "hot"],
        ["explain", "pod", "web-0"],
        ["explain", "migration", "job-0"],
        ["status"],
        ["doctor"],
    ):
        run_koord(*command, kubeconfig=books.plane.kubeconfig)
    assert books.reads("koord/") > 0
    assert books.writes("koord/") == []
    assert books.versions() == before


def test_without_dry_run_all_of_that_is_done(books: Books) -> None:
    with books.descheduler():
        wanted = ("leases", "podmigrationjobs", "drainnodes", "drainnodegroups", "events", "/eviction", "/nodes/")

        def missing() -> list[str]:
            writes = books.writes("koord-descheduler/")
            return [each for each in wanted if not any(each in write for write in writes)]

        end = time.monotonic() + SECONDS
        until(lambda: not missing() or time.monotonic() > end, SECONDS, "it acts")
        assert not missing()
