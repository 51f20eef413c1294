"""``koord support-bundle`` as a person runs it: on a cluster, with and without rights, and on the folder of a koord up.

Secrets are planted in all that it reads; none of them is in the file."""

from __future__ import annotations

import asyncio
import gzip
import json
import stat
import tarfile
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl

import pytest
import yaml

from koordinator.api import kinds
from koordinator.api.installation import NAMESPACE
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.manifests.installation import Installation, manifest_files
from koordinator.cli.main import main
from koordinator.cli.support_bundle.anonymity import Names
from koordinator.cli.support_bundle.archive import Archive, BundleError
from koordinator.cli.support_bundle.cluster_parts import ClusterParts
from koordinator.cli.support_bundle.collector import Collector, Content, Part
from koordinator.cli.support_bundle.redaction import REMOVED, Redactor
from koordinator.cluster.access.authorizer import AuthorizationMode
from koordinator.cluster.access.identity import authenticated
from koordinator.cluster.server import ServerOptions
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import ApiStatusError
from tests.cli.explained_cluster import ExplainedCluster, explained_cluster
from tests.cli.support_bundle.test_archive import texts
from tests.cli.test_explain_rights import KINDS
from tests.in_memory_api import InMemoryApi

SECRET = "hunter2-Sw0rdfish"
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
OF_OTHERS = ("web-0", "shop", "node-of-mine", "registry.corp.example", "alice", "checkout")
"""What --anonymize replaces or drops."""


def pod(name: str, **fields: Any) -> dict[str, Any]:
    container = {
        "name": "checkout",
        "image": "registry.corp.example/team/web:1",
        "command": ["run", f"--password={SECRET}"],
        "env": [{"name": "DB_PASSWORD", "value": SECRET}],
    }
    annotations = {"corp.example/owner": "alice", "corp.example/note": f"https://alice:{SECRET}@host/"}
    metadata = {"name": name, "annotations": annotations, "labels": {"app": "shop"}}
    return {"metadata": metadata, "spec": {"schedulerName": "koord-scheduler", "containers": [container], **fields}}


def plant(found: ExplainedCluster) -> None:
    """What a bundle reads, with a secret in each."""
    for definition in custom_resource_definitions():
        if definition["spec"]["names"]["kind"] in ("Reservation", "PodGroup"):
            found.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, definition)
    for role in yaml.safe_load_all(manifest_files(Installation(), ("rbac",))["rbac/koord-explain.yaml"]):
        if role["kind"] in KINDS:
            found.create(KINDS[role["kind"]], role, role["metadata"].get("namespace", ""))
    found.create(kinds.NAMESPACES, {"metadata": {"name": "shop"}})
    found.create(kinds.SECRETS, {"metadata": {"name": "planted"}, "stringData": {"password": SECRET}}, NAMESPACE)
    found.create(kinds.NODES, {"metadata": {"name": "node-of-mine", "annotations": {"x/api-key": SECRET}}})
    found.create(kinds.PODS, pod("web-0"), "shop")
    ours = pod("koord-manager-1", serviceAccountName="koord-explain")
    ours["metadata"] |= {"labels": {"koord-app": "koord-manager"}}
    ours["spec"]["containers"][0] |= {"name": "manager", "image": "registry.corp.example/koordinator:0.1.0"}
    ours["spec"]["containers"][0] |= {"args": ["--v=4", "--token", SECRET]}
    found.create(kinds.PODS, ours, NAMESPACE)
    configuration = {"colocation-config": f'{{"enable": true, "webhookToken": "{SECRET}"}}'}
    found.create(kinds.CONFIG_MAPS, {"metadata": {"name": "slo-controller-config"}, "data": configuration}, NAMESPACE)
    template = {"spec": pod("x")["spec"]}
    spec = {"template": template, "owners": [{"object": {"name": "web-0", "namespace": "shop"}}], "ttl": "1h"}
    found.create(kinds.RESERVATIONS, {"metadata": {"name": "for-shop"}, "spec": spec})
    involved = {"kind": "Pod", "name": "web-0", "namespace": "shop"}
    event = {"metadata": {"name": "web-0.1"}, "involvedObject": involved, "message": f"password={SECRET} is wrong"}
    found.create(kinds.EVENTS, event, "shop")
    found.documents["shop/web-0"] = {
        "pod": "shop/web-0",
        "advice": [f"node-of-mine says token={SECRET}"],
        "attempts": [],
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainedCluster]:
    users = {"viewer-token": authenticated("viewer", ())}
    options = ServerOptions(authorization_mode=AuthorizationMode.RBAC, users=users)
    with explained_cluster(tmp_path_factory.mktemp("cluster"), options) as found:
        plant(found)
        yield found


def bundle(
    cluster: ExplainedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: str, user: str = ""
) -> tuple[dict[str, str], dict[str, str], str]:
    """The files, the parts that are left out with their reasons, and standard error."""
    kubeconfig = cluster.kubeconfig
    if user:
        document = yaml.safe_load(cluster.kubeconfig.read_text())
        document["users"][0]["user"]["token"] = f"{user}-token"
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(document))
    file = tmp_path / "report.tar.gz"
    where = [f"--kubeconfig={kubeconfig}", f"--port={cluster.port}", f"--file={file}", "-o=json"]
    assert main(["support-bundle", *where, *arguments]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["file"] == str(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return texts(file), {each["path"]: each["reason"] for each in document["leftOut"]}, printed.err


def test_it_has_what_a_report_needs_and_no_secret(
    cluster: ExplainedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, left_out, said = bundle(cluster, tmp_path, capsys, "--node=node-of-mine")
    assert [name for name, text in files.items() if SECRET in text] == []
    assert json.loads(files["versions.json"])["version"]
    assert json.loads(files["cluster/version.json"])["gitVersion"]
    assert json.loads(files["objects/reservations.json"])["items"][0]["metadata"]["name"] == "for-shop"
    assert "1h" in files["objects/reservations.json"]
    (ours,) = json.loads(files["installation/pods.json"])["items"]
    assert ours["spec"]["containers"][0]["args"] == ["--v=4", "--token", REMOVED]
    assert "colocation-config" in files["configuration/slo-controller-config.json"]
    # The pod waits, so that it is explained, and so is the node that was named.
    assert json.loads(files["pods/shop/web-0/explanation.json"])["advice"] == [f"node-of-mine says token={REMOVED}"]
    assert "is wrong" in files["pods/shop/web-0/events.json"]
    assert "nodes/node-of-mine/nodes.json" in files
    assert files["programs/scheduler/metrics.txt"].startswith("# HELP")
    assert "profiles" in files["programs/scheduler/configuration.json"]
    assert left_out["objects/nodemetrics.json"] == "this cluster does not have its kind"
    assert left_out["nodes/node-of-mine/devices.json"] == "this cluster does not have its kind"
    assert left_out["configuration/koordlet-config.json"] == "there is none"
    assert "there is no Lease koordinator-system/koordinator-manager" in left_out["programs/manager/metrics.txt"]
    assert "read objects/reservations.json" in said
    assert f"koord: {len(left_out)} parts are left out" in said
    index = files["index.md"]
    assert all(f"| {name} |" in index for name in (*files, *left_out) if name != "index.md")
    assert "a variable of the environment: " in index


def test_no_secret_is_asked_for_and_nothing_is_written(cluster: ExplainedCluster) -> None:
    parts = ClusterParts(cluster.client, NAMESPACE, 10, 10, 1 << 20)
    named = parts.named([("shop", "web-0")], ["node-of-mine"])
    targets = [
        str(argument)
        for part in (*parts.installed(), *parts.stored(), *named)
        for argument in getattr(part.read, "args", ())
    ]
    assert len(targets) >= 50
    assert [target for target in targets if "/secrets" in target] == []


def test_names_are_replaced_everywhere(
    cluster: ExplainedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, left_out, said = bundle(cluster, tmp_path, capsys, "--anonymize", "--node=node-of-mine", "--pod=shop/web-0")
    everything = "\n".join([*files, *files.values(), *left_out, *left_out.values(), said])
    assert [name for name in (*OF_OTHERS, SECRET) if name in everything] == []
    (path,) = {name for name in files if name.startswith("pods/namespace-") and name.endswith("/explanation.json")}
    explained = files[path]
    waiting = json.loads(files["cluster/pending-pods.json"])["items"]
    names = {f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in waiting}
    assert json.loads(explained)["pod"] in names
    (reservation,) = json.loads(files["objects/reservations.json"])["items"]
    owner = reservation["spec"]["owners"][0]["object"]
    assert f"{owner['namespace']}/{owner['name']}" == json.loads(explained)["pod"]
    (ours,) = json.loads(files["installation/pods.json"])["items"]
    assert ours["metadata"]["name"] == "koord-manager-1"
    assert ours["spec"]["containers"][0]["image"] == "koordinator:0.1.0"


def test_who_lacks_rights_gets_the_rest_and_what_is_missing(
    cluster: ExplainedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, left_out, _ = bundle(cluster, tmp_path, capsys, "--pod=shop/web-0", "--quiet", user="viewer")
    assert "cluster/version.json" in files
    assert left_out["cluster/nodes.json"] == "you lack the permission to list nodes in the whole cluster"
    assert left_out["pods/shop/web-0/pod.json"] == "you lack the permission to get pods in the namespace shop"
    assert (
        left_out["programs/scheduler/metrics.txt"]
        == "you lack the permission to get leases.coordination.k8s.io in the namespace koordinator-system"
    )
    assert all("Traceback" not in reason for reason in left_out.values())


def test_where_not_all_names_are_known_nothing_is_written_that_may_have_one(
    cluster: ExplainedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--anonymize", "--node=node-of-mine", "--pod=shop/web-0")
    files, left_out, said = bundle(cluster, tmp_path, capsys, *arguments, user="viewer")
    assert sorted(files) == ["cluster/version.json", "index.md", "versions.json"]
    unpacked = gzip.decompress((tmp_path / "report.tar.gz").read_bytes()).decode()
    assert [name for name in OF_OTHERS if name in unpacked + said + json.dumps(left_out)] == []
    reason = "its names cannot be replaced: you lack the permission to list pods in the whole cluster"
    assert left_out["cluster/ready.txt"] == left_out["pods/namespace-1/pod-1/pod.json"] == reason


def test_one_list_of_names_that_fails_is_enough() -> None:
    class Failing:
        async def raw(self, method: str, target: str) -> bytes:
            if "/pods" in target:
                raise ApiStatusError(500, "InternalError", "it is broken")
            return b'{"items": [{"metadata": {"name": "mine"}}]}'

    names = Names()
    asyncio.run(ClusterParts(cast("KubeClient", Failing()), NAMESPACE, 10, 10, 1 << 20).learn(names))
    assert names.unknown == "it is broken (500 InternalError)"
    assert names.text("mine") == "namespace-1"


def test_a_file_that_is_there_is_kept(
    cluster: ExplainedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.tar.gz"
    file.write_text("kept")
    assert main(["support-bundle", f"--kubeconfig={cluster.kubeconfig}", f"--file={file}"]) == 1
    assert "is there already: name another with --file" in capsys.readouterr().err
    assert file.read_text() == "kept"


def test_a_cluster_that_is_not_there_makes_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    clusters = [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}]
    contexts = [{"name": "a", "context": {"cluster": "a", "user": "a"}}]
    document = {"current-context": "a", "clusters": clusters, "contexts": contexts, "users": [{"name": "a"}]}
    kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **document}))
    assert main(["support-bundle", f"--kubeconfig={kubeconfig}", f"--file={tmp_path / 'a.tar.gz'}"]) == 1
    assert "connection refused" in capsys.readouterr().err
    assert not (tmp_path / "a.tar.gz").exists()


def test_the_logs_of_a_koord_up_that_has_ended_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = tmp_path / "data/logs"
    logs.mkdir(parents=True)
    lines = [f"I1201 line {number}" for number in range(20)]
    (logs / "manager.log").write_text("\n".join([*lines, f"E1201 Authorization: Bearer {SECRET}", "the end"]) + "\n")
    (tmp_path / "data/scheduler-address").write_text("http://127.0.0.1:1\n")
    file = tmp_path / "a.tar.gz"
    assert main(["support-bundle", f"--data={tmp_path / 'data'}", f"--file={file}", "--log-lines=3", "-q"]) == 0
    assert capsys.readouterr().out == f"{file}\n"
    log = texts(file)["logs/manager.log"]
    assert log == f"I1201 line 19\nE1201 Authorization: {REMOVED}\nthe end\n"
    assert json.loads(texts(file)["status.json"])["status"] == "not running"


def collected(tmp_path: Path, parts: list[Part], *, deadline: float = 60.0, most: int = 100) -> dict[str, str]:
    """The files of a bundle of these parts; what is left out has its reason."""
    file = tmp_path / "a.tar.gz"

    async def collect(archive: Archive) -> None:
        until = asyncio.get_running_loop().time() + deadline
        await Collector(archive, Redactor(), None, most, until, lambda _: None).collect(parts)

    with Archive(file, NOW, 1 << 20) as archive:
        asyncio.run(collect(archive))
        archive.finish("", [])
        left_out = {each.path: each.reason for each in archive.left_out}
    return texts(file) | left_out


def test_a_text_that_is_too_long_keeps_its_end(tmp_path: Path) -> None:
    async def long() -> Content:
        return Content("a" * 99 + "\nend")

    found = collected(tmp_path, [Part("long", "", long)], most=10)
    assert found["long"] == "aaaaaa\nend"
    assert "its beginning is cut off: 10 of 103 bytes" in found["index.md"]


def test_what_hangs_costs_itself_alone_and_so_does_what_fails(tmp_path: Path) -> None:
    async def hangs() -> Content:
        await asyncio.Event().wait()
        raise AssertionError

    async def fails() -> Content:
        raise ApiStatusError(500, "InternalError", f"token={SECRET} failed")

    async def works() -> Content:
        return Content({"a": 1})

    parts = [Part("hangs", "", hangs), Part("fails", "", fails), Part("works", "", works)]
    found = collected(tmp_path, parts, deadline=0.05)
    assert found["hangs"] == "time was up: --timeout"
    assert found["fails"] == f"token={REMOVED} failed (500 InternalError)"
    assert json.loads(found["works"]) == {"a": 1}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(5, "Input/output error"), "[Errno 5] Input/output error"),
        (AttributeError("'list' has no items"), "a defect of this command: AttributeError: 'list' has no items"),
    ],
)
def test_what_nobody_expects_costs_itself_alone(error: Exception, reason: str, tmp_path: Path) -> None:
    async def fails() -> Content:
        raise error

    async def works() -> Content:
        return Content({"a": 1})

    found = collected(tmp_path, [Part("fails", "", fails), Part("works", "", works)])
    assert found["fails"] == reason
    assert json.loads(found["works"]) == {"a": 1}


def test_what_cannot_be_cleaned_costs_itself_alone(tmp_path: Path) -> None:
    async def deep() -> Content:
        value: Any = "end"
        for _ in range(100_000):
            value = [value]
        return Content(value)

    async def annotated() -> Content:
        return Content({"annotations": {"a": "[" * 100_000}})

    found = collected(tmp_path, [Part("deep", "", deep), Part("annotated", "", annotated)])
    assert found["deep"] == "it is nested too deep to be looked through"
    assert json.loads(found["annotated"]) == {"annotations": {"a": REMOVED}}


def test_a_file_that_can_no_longer_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def works() -> Content:
        return Content("a")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    with pytest.raises(BundleError, match="cannot be written: No space left on device"):
        collected(tmp_path, [Part(name, "", works) for name in "abc"])
    assert list(tmp_path.iterdir()) == []


def test_no_more_than_a_few_requests_are_under_way_at_once(tmp_path: Path) -> None:
    running, most = 0, 0

    async def counted() -> Content:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return Content("")

    collected(tmp_path, [Part(str(number), "", counted) for number in range(50)])
    assert most == 6


def test_a_long_list_is_read_in_pages_up_to_its_limit() -> None:
    api = InMemoryApi()
    for number in range(600):
        api.put(kinds.NODES, {"metadata": {"name": f"n{number:03}"}})

    async def listed(most_bytes: int) -> Content:
        parts = ClusterParts(api.client(), NAMESPACE, 10, 10, most_bytes)
        return await parts.listed(kinds.NODES.path())

    whole, cut = asyncio.run(listed(1 << 30)), asyncio.run(listed(1))
    assert (len(whole.value["items"]), whole.note) == (600, "")
    assert (len(cut.value["items"]), cut.note) == (250, "the first 250 alone: more than 0 MiB")


def test_logs_are_those_of_pods_that_do_badly_and_of_named_nodes_first() -> None:
    def agent(name: str, node: str, restarts: int = 0, ready: bool = True) -> dict[str, Any]:
        status = {"name": "koordlet", "restartCount": restarts, "ready": ready}
        owner = {"kind": "DaemonSet", "name": "koordlet"}
        return {
            "metadata": {"name": name, "labels": {"koord-app": "koordlet"}, "ownerReferences": [owner]},
            "spec": {"nodeName": node, "containers": [{"name": "koordlet"}]},
            "status": {"containerStatuses": [status]},
        }

    pods = {"items": [agent("a", "1"), agent("b", "2"), agent("c", "3", restarts=2), agent("d", "4", ready=False)]}
    pods["items"].append({"metadata": {"name": "other"}, "spec": {"containers": [{"name": "x"}]}})
    parts = ClusterParts(InMemoryApi().client(), NAMESPACE, 100, 3, 1 << 20).logs(pods, ["2"])
    assert [part.path for part in parts] == [
        *("logs/b/koordlet.log", "logs/c/koordlet.log", "logs/c/koordlet.previous.log", "logs/d/koordlet.log")
    ]
    (target,) = parts[2].read.args  # type: ignore[attr-defined]
    assert target.endswith("/pods/c/log?container=koordlet&previous=true")


def log_of(lines: list[bytes], wanted: int) -> tuple[Content, list[dict[str, str]]]:
    """As the kubelet answers: the bytes are counted from the first of the last lines on."""
    asked = []

    class Kubelet:
        async def raw(self, method: str, target: str) -> bytes:
            query = dict(parse_qsl(target.partition("?")[2]))
            asked.append(query)
            return b"".join(lines[-int(query["tailLines"]) :])[: int(query["limitBytes"])]

    pod = {"metadata": {"name": "a", "labels": {"koord-app": "koordlet"}}, "spec": {"containers": [{"name": "b"}]}}
    parts = ClusterParts(cast("KubeClient", Kubelet()), NAMESPACE, wanted, 1, 1 << 20)
    (part,) = parts.logs({"items": [pod]}, [])
    return asyncio.run(cast("Coroutine[Any, Any, Content]", part.read())), asked


def test_a_long_log_keeps_its_newest_lines() -> None:
    content, asked = log_of([b"%04d %s\n" % (number, b"a" * 2000) for number in range(5000)], 5000)
    lines = content.value.splitlines()
    assert lines[-1].startswith("4999 ")
    assert len(lines) > 1000
    assert content.note == f"the last {len(lines)} lines alone: more than 4 MiB"
    assert len(asked) <= 3


def test_a_short_log_is_asked_for_once() -> None:
    content, asked = log_of([b"a\n", b"b\n", b"c\n"], 2)
    assert (content.value, content.note) == ("b\nc\n", "")
    assert asked == [{"container": "b", "tailLines": "2", "limitBytes": "4194304", "timestamps": "true"}]


def test_of_a_line_that_is_too_long_it_is_said() -> None:
    content, _ = log_of([b"a\n", b"b" * (5 << 20)], 5000)
    assert content.note == "the beginning of the last line alone: more than 4 MiB"
