"""Which cluster ``koord explain`` queries: kubectl's own, in kubectl's order, else that of koord up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from koordinator.cli.data_folder import SCHEDULER, publish_address
from koordinator.cli.explain_cluster import Cluster, ClusterOptions, find_cluster
from koordinator.cli.explain_failure import UsageError


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return tmp_path / "home"


def write(path: Path, *names: str, namespace: str = "", current: str | None = None) -> Path:
    """A kubeconfig with a cluster and a context for each name, the first of them current."""
    context: dict[str, Any] = {"namespace": namespace} if namespace else {}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": names[0] if current is None else current,
        "clusters": [{"name": f"{name}-cluster", "cluster": {"server": f"https://{name}:6443"}} for name in names],
        "contexts": [{"name": name, "context": {"cluster": f"{name}-cluster", **context}} for name in names],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


def found(
    home: Path,
    *,
    kubeconfig: Path | None = None,
    context: str = "",
    data: Path | None = None,
    **environment: str,
) -> Cluster | None:
    return find_cluster(ClusterOptions(kubeconfig, context, data, 5.0, {"HOME": str(home), **environment}))


def server(cluster: Cluster | None) -> str:
    assert cluster is not None
    return cluster.server.removeprefix("https://").removesuffix(":6443")


def up(folder: Path, name: str) -> Path:
    """A koord up that serves in ``folder``."""
    write(folder / "kubeconfig", name)
    publish_address(folder, SCHEDULER, 10251)
    return folder


def test_the_file_in_the_home_folder_is_read(home: Path) -> None:
    write(home / ".kube" / "config", "a")
    assert server(found(home)) == "a"


def test_the_files_of_the_variable_are_merged(home: Path, tmp_path: Path) -> None:
    write(home / ".kube" / "config", "home")
    first, second = write(tmp_path / "1", "a"), write(tmp_path / "2", "b", "a")
    variable = f"{first}:{tmp_path / 'missing'}:{second}"
    assert server(found(home, KUBECONFIG=variable)) == "a"
    assert server(found(home, KUBECONFIG=variable, context="b")) == "b"


def test_the_client_gets_the_same_files(home: Path, tmp_path: Path) -> None:
    first, second = write(tmp_path / "1", "a"), write(tmp_path / "2", "b")
    cluster = found(home, KUBECONFIG=f"{first}:{second}", context="b", KUBERNETES_SERVICE_HOST="10.0.0.1")
    assert cluster is not None
    assert cluster.client is not None
    assert (cluster.client.environment["KUBECONFIG"], cluster.client.context) == (f"{first}:{second}", "b")


def test_an_explicit_file_is_the_only_one(home: Path, tmp_path: Path) -> None:
    own = write(tmp_path / "own", "own")
    assert server(found(home, kubeconfig=own, KUBECONFIG=str(write(tmp_path / "1", "a")))) == "own"


def test_the_namespace_is_the_context_s(home: Path, tmp_path: Path) -> None:
    cluster = found(home, KUBECONFIG=str(write(tmp_path / "1", "a", namespace="shop")))
    assert cluster is not None
    assert cluster.namespace == "shop"


def test_without_a_namespace_it_is_default(home: Path, tmp_path: Path) -> None:
    cluster = found(home, KUBECONFIG=str(write(tmp_path / "1", "a")))
    assert cluster is not None
    assert cluster.namespace == "default"


def test_without_a_kubeconfig_it_is_the_local_cluster(home: Path) -> None:
    folder = up(home / ".local" / "state" / "koordinator", "local")
    cluster = found(home)
    assert (server(cluster), cluster and cluster.data) == ("local", folder)
    assert cluster is not None
    assert cluster.name.startswith("the local cluster of koord up (https://local:6443, state in ")


def test_an_empty_kubeconfig_is_none(home: Path) -> None:
    (home / ".kube").mkdir(parents=True)
    (home / ".kube" / "config").write_text("apiVersion: v1\nkind: Config\n")
    up(home / ".local" / "state" / "koordinator", "local")
    assert server(found(home)) == "local"


def test_a_kubeconfig_of_the_local_cluster_is_recognised(home: Path, tmp_path: Path) -> None:
    folder = up(tmp_path / "data", "local")
    cluster = found(home, KUBECONFIG=str(folder / "kubeconfig"))
    assert cluster is not None
    assert cluster.data == folder


def test_a_real_cluster_beside_a_koord_up_is_not_taken_for_it(home: Path) -> None:
    up(home / ".local" / "state" / "koordinator", "local")
    write(home / ".kube" / "config", "real")
    cluster = found(home)
    assert (server(cluster), cluster and cluster.data) == ("real", None)


def test_a_folder_is_named_before_any_kubeconfig(home: Path, tmp_path: Path) -> None:
    write(home / ".kube" / "config", "real")
    assert server(found(home, data=up(tmp_path / "data", "local"))) == "local"


def test_in_a_pod_its_own_cluster_comes_after_kubeconfigs(home: Path) -> None:
    assert server(found(home, KUBERNETES_SERVICE_HOST="pods", KUBERNETES_SERVICE_PORT="6443")) == "pods"
    write(home / ".kube" / "config", "real")
    assert server(found(home, KUBERNETES_SERVICE_HOST="pods")) == "real"


def test_with_nothing_at_all_there_is_none(home: Path) -> None:
    assert found(home) is None


def test_the_name_says_how_the_cluster_was_found(home: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "1", "a")
    cluster = found(home, KUBECONFIG=str(file))
    assert cluster is not None
    assert cluster.name == f'the cluster "a-cluster" (context "a" of {file}, https://a:6443)'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not YAML"),
        ("[]", "kubeconfig"),
        ("current-context: gone\ncontexts: [{name: a, context: {cluster: x}}]", "there is no context 'gone'"),
        ("current-context: a\ncontexts: [{name: a, context: {cluster: x}}]", "there is no cluster 'x' in clusters"),
        ("contexts: [{name: a, context: {cluster: x}}]", "current-context is not set"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_says_why(home: Path, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "bad").write_text(text)
    with pytest.raises(UsageError, match=said):
        found(home, KUBECONFIG=str(tmp_path / "bad"))


def test_a_variable_that_names_no_file_is_not_passed_over(home: Path, tmp_path: Path) -> None:
    up(home / ".local" / "state" / "koordinator", "local")
    with pytest.raises(UsageError, match="KUBECONFIG: there is no such file"):
        found(home, KUBECONFIG=str(tmp_path / "missing"))


def test_a_context_needs_a_kubeconfig(home: Path) -> None:
    with pytest.raises(UsageError, match="there is no context 'x'"):
        found(home, context="x")


def test_a_file_that_is_not_there_is_named(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        found(home, kubeconfig=tmp_path / "missing")
