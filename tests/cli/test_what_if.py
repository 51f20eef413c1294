"""``koord what-if`` as it is typed: what it prints, how it ends, and what it says of mistakes."""

from __future__ import annotations

import io
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordinator.api.kinds import NODES, PODS
from koordinator.cli.main import main
from koordinator.cli.what_if_input import read_objects
from koordinator.simulate.snapshot import save
from tests.cli.explained_cluster import explained_cluster
from tests.simulate.clusters import WEB_OWNER, cluster, deployment, node, pod, snapshot_of

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of three nodes, two of them nearly full."""
    file = tmp_path_factory.mktemp("what-if") / "snapshot"
    pods = [pod("web-1", "a", "4", WEB_OWNER), pod("web-2", "a", "4", WEB_OWNER), pod("other", "b", "3")]
    save(snapshot_of(cluster([node("a"), node("b"), node("c", "4")], [*pods, pod("huge", cpu="99")])), file)
    return file


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def file_of(folder: Path, *documents: Any) -> str:
    path = folder / "objects.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def test_a_drain_in_words(snapshot: Path, capsys: Captured) -> None:
    assert main(["what-if", "drain", "a", f"--snapshot={snapshot}"]) == 0
    text = capsys.readouterr().out
    assert text.isascii()
    assert "| a    | 2 -> 0 | 100 % -> 0 %" in text
    assert text.startswith("What if node a is drained?\n  2 pods would move to another node.\n")
    assert "| replicaset default/web | 2    | a    |" in text
    assert "  * without any change, 1 pod would be pending" in text
    said = " ".join(text.split())
    assert said.endswith(
        "On a snapshot of 2026-01-01T00:00:00Z (3 nodes, 4 pods) with the default configuration, since that of the "
        "cluster is not known; nothing was written. What is not simulated: koord what-if --help."
    )


def test_all_of_it_for_programs(snapshot: Path, capsys: Captured) -> None:
    assert main(["what-if", "drain", "a", f"--snapshot={snapshot}", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["changes"] == ["node a is drained"]
    assert {each["node"] for each in document["placed"]} == {"b", "c"}


def test_a_check_fails_where_something_stays_pending(snapshot: Path, tmp_path: Path, capsys: Captured) -> None:
    fits, too_many = deployment("new", 1), deployment("new", 9, "3")
    arguments = ["what-if", "apply", f"--snapshot={snapshot}", "--check", "-f"]
    assert main([*arguments, file_of(tmp_path, fits)]) == 0
    assert main([*arguments, file_of(tmp_path, too_many)]) == 6
    assert main(["what-if", "drain", "b", f"--snapshot={snapshot}", "--check"]) == 6
    text = capsys.readouterr().out
    assert "Who would stay pending" in text
    assert "What would help" in text
    assert "What could not be done" in text
    assert "default/other stays on b: it has no controller that makes it again" in " ".join(text.split())


def test_how_many_fit_in_words(snapshot: Path, tmp_path: Path, capsys: Captured) -> None:
    assert main(["what-if", "fit", f"--snapshot={snapshot}", "-f", file_of(tmp_path, deployment("new", 1, "2"))]) == 0
    text = capsys.readouterr().out
    assert text.startswith("What if more pods like deployment default/new are created?\n  4 more pods would fit.\n")
    assert "Where they would go: 2 nodes" in text
    assert "What stops the next one: 0/3 nodes are available: 3 Insufficient cpu." in text


def test_another_node_in_words(snapshot: Path, capsys: Captured) -> None:
    assert main(["what-if", "add-node", "--like=a", "--count=2", "--label=zone=b", f"--snapshot={snapshot}"]) == 0
    text = capsys.readouterr().out
    assert "a-what-if-1 (added)" in text
    assert "The whole cluster (3 -> 5 nodes): cpu 55 % -> 30.6 %" in text


@pytest.mark.parametrize("command", ["scale", "delete", "remove-node", "config", "colocation", "changes"])
def test_each_command_does_something(command: str, snapshot: Path, tmp_path: Path, capsys: Captured) -> None:
    configuration = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    (tmp_path / "scheduler.yaml").write_text(configuration)
    (tmp_path / "changes.yaml").write_text("changes:\n- drain: {nodes: [a]}\n- addNodes: {like: a}\n")
    slo = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config"},
        "data": {"colocation-config": '{"enable": true}'},
    }
    arguments = {
        "scale": ["replicaset/web", "--replicas=0"],
        "delete": ["pod/other"],
        "remove-node": ["b"],
        "config": ["-f", str(tmp_path / "scheduler.yaml"), "--replay"],
        "colocation": ["-f", file_of(tmp_path, slo)],
        "changes": ["-f", str(tmp_path / "changes.yaml")],
    }
    status = main(["what-if", command, *arguments[command], f"--snapshot={snapshot}"])
    output = capsys.readouterr()
    if command == "scale":
        # The ReplicaSet itself is not in this snapshot.
        assert status == 3
        assert "there is no ReplicaSet 'web' in the namespace 'default' of the snapshot; there are none" in output.err
        return
    assert status == 0, output.err
    said = {
        "delete": "What if Pod default/other is deleted?",
        "remove-node": "default/other on b: no controller makes it again",
        "config": "All 4 pods placed anew, in the order of their creation",
        "colocation": "a: the node has no NodeMetric",
        "changes": "What if node a is drained; node a-what-if-1 like a is added?",
    }
    assert said[command] in output.out


def test_a_snapshot_is_taken_of_a_cluster_and_queried_later(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "snapshot"
    with explained_cluster(tmp_path) as found:
        kubeconfig = f"--kubeconfig={found.kubeconfig}"
        machine = node("a")
        found.create(NODES, machine)
        found.set_status(NODES, "a", machine["status"])
        new = pod("x")
        del new["spec"]["priority"]
        found.create(PODS, new, "default")
        assert main(["what-if", "snapshot", str(file), kubeconfig]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert f"{file}: 1 node, 1 pod," in said
        assert main(["what-if", "delete", "pod/x", kubeconfig, "-o=json", f"--save={tmp_path / 'again'}"]) == 0
        online = json.loads(capsys.readouterr().out)
        assert {pod.metadata.name for pod in found.do(found.client.list(PODS)).items} == {"x"}
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE((tmp_path / "again").stat().st_mode) == 0o600
    assert main(["what-if", "delete", "pod/x", f"--snapshot={file}", "-o=json"]) == 0
    offline = json.loads(capsys.readouterr().out)
    for document in (online, offline):
        del document["snapshot"]
    assert online == offline


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["drain", "z"], 3, "there is no node 'z' in the snapshot; there are a, b, c"),
        (["scale", "web", "--replicas=1"], 3, "'web' is no workload: KIND/NAME is needed"),
        (["delete", "web"], 2, "delete: 'web' is not usable: KIND/NAME is needed"),
        (
            ["apply", "-f", "nothing.yaml"],
            2,
            "-f: 'nothing.yaml' is not usable: a YAML file that can be read is needed (no such file",
        ),
        (["apply", "-f", "{empty}"], 2, "a file with at least one object is needed"),
        (["apply", "-f", "{broken}"], 2, "broken.yaml: line 1: 'a' is not usable: a key may stand only once"),
        (
            ["apply", "-f", "{kindless}"],
            2,
            "kindless.yaml: line 1: kind: None is not usable: an object says what it is",
        ),
        (["apply", "-f", "{nameless}"], 2, "nameless.yaml: line 3: metadata: {} is not usable: a name is needed"),
        (["fit", "-f", "{two}"], 2, "'2 of 2 objects' is not usable: one pod, or one workload with a template"),
        (["colocation", "-f", "{two}"], 2, "the one ConfigMap slo-controller-config, with data, is needed"),
        (["config", "-f", "nothing.yaml"], 2, "--config: 'nothing.yaml' is not usable"),
        (["drain", "a", "--scheduler-config=nothing.yaml"], 2, "'nothing.yaml' is not usable"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], status: int, said: str, snapshot: Path, tmp_path: Path, capsys: Captured
) -> None:
    texts = {
        "empty": "",
        "broken": "{a: 1, a: 2}",
        "kindless": "apiVersion: v1\nmetadata: {name: x}\n",
        "nameless": "apiVersion: v1\nkind: Pod\nmetadata: {}\n",
        "two": yaml.safe_dump_all([deployment("x", 1), deployment("y", 1)]),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    given = [each.format(**{name: tmp_path / f"{name}.yaml" for name in texts}) for each in arguments]
    assert main(["what-if", *given, f"--snapshot={snapshot}"]) == status
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("koord: ")
    assert output.err.count("\n") == 1
    assert said in output.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_disk_that_is_full(snapshot: Path) -> None:
    command = [sys.executable, "-m", "koordinator.cli.main", "what-if", "drain", "a", f"--snapshot={snapshot}"]
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    expected = b"koord: the output could not be written: No space left on device\n"
    assert (process.returncode, process.stderr) == (1, expected)


def test_flags_of_the_scheduler_are_those_that_it_has(snapshot: Path, capsys: Captured) -> None:
    arguments = ["what-if", "drain", "a", f"--snapshot={snapshot}"]
    assert main([*arguments, "--scheduler-flag=--enable-network-topology-manager"]) == 0
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--scheduler-flag=--nonsense=1"])
    assert ended.value.code == 2
    assert "--nonsense: '--nonsense=1' is not usable: there is no such flag" in capsys.readouterr().err


def test_how_many_fit_in_a_namespace_of_the_same_file(snapshot: Path, tmp_path: Path, capsys: Captured) -> None:
    planned = deployment("new", 1, "1")
    planned["metadata"]["namespace"] = "planned"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "planned"}}
    assert main(["what-if", "fit", "-f", file_of(tmp_path, namespace, planned), f"--snapshot={snapshot}"]) == 0
    assert "more pods like deployment planned/new are created" in " ".join(capsys.readouterr().out.split())


def test_a_node_that_the_cluster_does_not_have_is_said_before_it_is_listed(tmp_path: Path, capsys: Captured) -> None:
    with explained_cluster(tmp_path) as cluster:
        cluster.create(NODES, {"metadata": {"name": "worker-1"}})
        assert main(["what-if", "drain", "worker-2", f"--kubeconfig={cluster.kubeconfig}"]) == 3
    assert "there is no node worker-2 in" in (said := capsys.readouterr().err)
    assert said.endswith("did you mean worker-1?\n")


def test_objects_may_come_from_standard_input(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(deployment("new", 2))))
    assert main(["what-if", "apply", "-f", "-", "-n", "default", f"--snapshot={snapshot}"]) == 0
    assert "deployment default/new with 2 pods is created" in capsys.readouterr().out


def test_without_a_cluster_it_is_said_where_one_was_looked_for(tmp_path: Path, capsys: Captured) -> None:
    assert main(["what-if", "drain", "a"]) == 1
    assert "no cluster found: there is no kubeconfig" in capsys.readouterr().err
    assert main(["what-if", "drain", "a", f"--snapshot={tmp_path / 'nothing'}"]) == 2
    assert "nothing cannot be read: No such file or directory" in capsys.readouterr().err


def test_a_list_of_objects_is_read_and_times_stay_texts(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(
        """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: x, annotations: {at: 2026-01-01T00:00:00Z}}}
- {apiVersion: v1, kind: Pod, metadata: {name: y}}
"""
    )
    first, second = read_objects([str(path)])
    assert first["metadata"]["annotations"] == {"at": "2026-01-01T00:00:00+00:00"}
    assert second["metadata"] == {"name": "y"}
