"""What is read of a cluster, what of it is kept, and the file."""

from __future__ import annotations

import asyncio
import gzip
import stat
from pathlib import Path

import pytest

from koordinator.api.kinds import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, NODE_METRICS, NODES, PODS, REPLICA_SETS, SECRETS
from koordinator.kube.errors import ApiStatusError
from koordinator.simulate.node_changes import Drain
from koordinator.simulate.snapshot import Snapshot, SnapshotError, load, save
from koordinator.simulate.what_if import what_if
from tests.in_memory_api import ApiRequest, InMemoryApi
from tests.simulate.clusters import WEB_OWNER, Document, cluster, deployment, node, pod, put, snapshot_of

_SECRET = "hunter2"


def _with_secrets() -> InMemoryApi:
    running = pod("web-1", on="a")
    running["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": _SECRET,
        "koordinator.sh/cpuQOS": "{}",
    }
    running["metadata"]["managedFields"] = [{"manager": _SECRET}]
    container = running["spec"]["containers"][0]
    container |= {
        "env": [{"name": "PASSWORD", "value": _SECRET}],
        "command": [_SECRET],
        "args": [_SECRET],
        "volumeMounts": [{"name": "secrets", "mountPath": f"/{_SECRET}"}],
    }
    running["spec"]["volumes"] = [
        {"name": "secrets", "secret": {"secretName": _SECRET}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    running["spec"]["imagePullSecrets"] = [{"name": _SECRET}]
    workload = deployment("web", 1)
    workload["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": _SECRET}]
    api = cluster([node("a")], [running])
    put(api, DEPLOYMENTS, workload)
    put(api, SECRETS, {"metadata": {"name": "s", "namespace": "default"}, "data": {"password": "aHVudGVyMg=="}})
    put(api, CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "default"}, "data": {"password": _SECRET}})
    put(api, CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "koordinator-system"}, "data": {"p": _SECRET}})
    return api


def test_a_snapshot_has_nothing_secret(tmp_path: Path) -> None:
    snapshot = snapshot_of(_with_secrets())
    save(snapshot, tmp_path / "file")
    text = gzip.decompress((tmp_path / "file").read_bytes())
    assert b'"claimName":"data"' in text
    assert b"koordinator.sh/cpuQOS" in text
    assert _SECRET.encode() not in text
    assert b"aHVudGVyMg" not in text


def test_list_requests_are_all_that_a_cluster_is_queried() -> None:
    api = _with_secrets()
    api.requests.clear()
    snapshot_of(api)
    assert {received.verb for received in api.requests} == {"list"}
    assert "secrets" not in {received.plural for received in api.requests}
    assert not api.writes


def test_a_file_gives_back_what_was_saved_and_its_owner_alone_may_read_it(tmp_path: Path) -> None:
    snapshot = snapshot_of(_with_secrets())
    file = tmp_path / "today.snapshot"
    save(snapshot, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert load(file) == snapshot
    assert [each.name for each in tmp_path.iterdir()] == ["today.snapshot"]
    first = file.read_bytes()
    save(snapshot, file)
    assert file.read_bytes() == first


def test_a_file_that_is_cut_off_or_something_else_is_refused(tmp_path: Path) -> None:
    snapshot = snapshot_of(cluster([node(f"node-{number}") for number in range(50)]))
    file = tmp_path / "file"
    save(snapshot, file)
    whole = file.read_bytes()
    lines = gzip.decompress(whole).splitlines(keepends=True)
    for damaged, said in (
        (whole[: len(whole) // 2], "cannot be read"),
        (b"apiVersion: v1\n", "cannot be read"),
        (gzip.compress(b""), "is not a snapshot"),
        (gzip.compress(b"".join(lines[:-3])), "is not complete: it has"),
        (gzip.compress(lines[0].replace(b"snapshot/1", b"snapshot/9")), "this version reads koordinator-snapshot/1"),
    ):
        file.write_bytes(damaged)
        with pytest.raises(SnapshotError, match=said):
            load(file)
    with pytest.raises(SnapshotError, match="No such file"):
        load(tmp_path / "missing")


def test_long_lists_are_read_page_by_page() -> None:
    api = cluster([node(f"node-{number}") for number in range(1201)])
    api.requests.clear()
    snapshot = snapshot_of(api)
    assert snapshot.count("nodes") == 1201
    assert sum(received.plural == "nodes" for received in api.requests) == 3


def test_pages_that_have_expired_are_listed_anew() -> None:
    api = cluster([node(f"node-{number}") for number in range(1201)])
    received: list[ApiRequest] = []

    def expire_once(request: ApiRequest, done: bool) -> Exception | None:
        if request.plural == "nodes" and not done:
            received.append(request)
            if len(received) == 2:
                return ApiStatusError(410, "Expired", "too old")
        return None

    api.fault = expire_once
    snapshot = snapshot_of(api)
    assert snapshot.count("nodes") == len(set(snapshot.objects["nodes"])) == 1201


def _refusing(api: InMemoryApi, plural: str) -> InMemoryApi:
    refusal = ApiStatusError(403, "Forbidden", f'cannot list resource "{plural}"')
    api.fault = lambda received, done: refusal if received.plural == plural else None
    return api


def test_a_kind_that_may_not_be_listed_is_named() -> None:
    snapshot = snapshot_of(_refusing(cluster([node("a")]), NODE_METRICS.plural))
    assert snapshot.missing == {"nodemetrics.v1alpha1.slo.koordinator.sh": "not allowed to list it"}


def test_without_the_right_to_list_namespaces_pods_can_be_made_again_all_the_same() -> None:
    owned = pod("web-1", on="a", owner=WEB_OWNER)
    owned["metadata"]["namespace"] = "shop"
    snapshot = snapshot_of(_refusing(cluster([node("a"), node("b")], [owned]), NAMESPACES.plural))
    outcome = asyncio.run(what_if(snapshot, [Drain(["a"])]))
    assert [(each["pod"].partition("/")[0], each["node"]) for each in outcome["placed"]] == [("shop", "b")]


@pytest.mark.parametrize("kind", [NODES, PODS])
def test_without_nodes_or_pods_there_is_no_snapshot(kind: Document) -> None:
    with pytest.raises(SnapshotError, match=r"cannot be listed.*docs/examples/what-if-role.yaml"):
        snapshot_of(_refusing(cluster([node("a")]), kind.plural))  # type: ignore[attr-defined]


def test_a_kind_that_the_server_does_not_have_is_empty() -> None:
    api = InMemoryApi(without_groups=frozenset({"scheduling.koordinator.sh"}))
    put(api, NODES, node("a"))
    snapshot = snapshot_of(api)
    assert snapshot.missing == {}
    assert snapshot.count("nodes") == 1


def test_the_configuration_of_the_scheduler_is_that_of_its_config_map() -> None:
    api = cluster([node("a")])
    put(
        api,
        CONFIG_MAPS,
        {
            "metadata": {"name": "koord-scheduler-config", "namespace": "koordinator-system"},
            "data": {"koord-scheduler-config": "kind: KubeSchedulerConfiguration"},
        },
    )
    snapshot = snapshot_of(api)
    assert snapshot.scheduler_configuration == "kind: KubeSchedulerConfiguration"
    assert snapshot.configuration_source == "ConfigMap koordinator-system/koord-scheduler-config"


def test_old_replica_sets_and_finished_ones_are_left_out() -> None:
    api = cluster([node("a")])
    old, now = deployment("old", 0), deployment("now", 2)
    put(api, REPLICA_SETS, old, now)
    (kept,) = snapshot_of(api).objects["replicasets.v1.apps"]
    assert b'"name":"now"' in kept


def test_the_moment_is_that_of_the_clock() -> None:
    api = cluster([node("a")])
    asyncio.run(api.clock.sleep(0))
    snapshot: Snapshot = snapshot_of(api)
    assert snapshot.began == snapshot.ended == api.clock.now()
