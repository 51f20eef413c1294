"""The client against a real kube-apiserver: verbs, patch types, paging, watches and their ends."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from koordinator.api import kinds
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from tests.kube.listing import list_all
from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms

Body = Callable[[KubeClient, str], Coroutine[Any, Any, Any]]


@asynccontextmanager
async def namespace(kubeconfig: Path) -> AsyncIterator[tuple[KubeClient, str]]:
    """A client and a namespace of its own."""
    client = await connect(ClientOptions(kubeconfig=str(kubeconfig)))
    name = f"client-{uuid.uuid4().hex[:8]}"
    try:
        await client.create(kinds.NAMESPACES, {"metadata": {"name": name}})
        yield client, name
        await client.delete_collection(kinds.CONFIG_MAPS, name)
        await client.delete(kinds.NAMESPACES, name)
    finally:
        await client.close()


def within(kubeconfig: Path, body: Body) -> Any:
    """Run ``body`` with a client and a namespace."""

    async def work() -> Any:
        async with asyncio.timeout(60), namespace(kubeconfig) as (client, name):
            return await body(client, name)

    return asyncio.run(work())


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"n": name}}, "data": data}


def test_create_get_update_delete(real_cluster: Path) -> None:
    async def body(client: KubeClient, ns: str) -> None:
        created = await client.create(kinds.CONFIG_MAPS, config_map("a", x="1"), ns)
        got = await client.get(kinds.CONFIG_MAPS, "a", ns)
        assert got == created
        changed = config_map("a", x="2")
        changed["metadata"]["resourceVersion"] = got.metadata.resource_version
        assert (await client.update(kinds.CONFIG_MAPS, changed, "a", ns)).data == {"x": "2"}
        with pytest.raises(ApiStatusError) as conflict:
            await client.update(kinds.CONFIG_MAPS, changed, "a", ns)
        assert conflict.value.is_conflict
        with pytest.raises(ApiStatusError) as exists:
            await client.create(kinds.CONFIG_MAPS, config_map("a"), ns)
        assert exists.value.is_already_exists
        with pytest.raises(ApiStatusError) as precondition:
            await client.delete(kinds.CONFIG_MAPS, "a", ns, uid="other")
        assert precondition.value.is_conflict
        await client.delete(kinds.CONFIG_MAPS, "a", ns, uid=got.metadata.uid)
        with pytest.raises(ApiStatusError) as gone:
            await client.get(kinds.CONFIG_MAPS, "a", ns)
        assert gone.value.is_not_found

    within(real_cluster, body)


def test_every_patch_type(real_cluster: Path) -> None:
    async def body(client: KubeClient, ns: str) -> dict[str, str]:
        await client.create(kinds.CONFIG_MAPS, config_map("a", x="1", y="1"), ns)

        async def patch(document: Any, patch_type: PatchType, **options: Any) -> dict[str, str]:
            return (await client.patch(kinds.CONFIG_MAPS, "a", document, patch_type, ns, **options)).data

        await patch([{"op": "replace", "path": "/data/x", "value": "json"}], PatchType.JSON)
        await patch({"data": {"merge": "m", "y": None}}, PatchType.MERGE)
        await patch({"data": {"strategic": "s"}}, PatchType.STRATEGIC)
        with pytest.raises(ApiStatusError) as conflict:
            await patch({"data": {"x": "applied"}}, PatchType.APPLY, field_manager="test")
        assert conflict.value.is_conflict
        return await patch({"data": {"x": "applied"}}, PatchType.APPLY, field_manager="test", force=True)

    assert within(real_cluster, body) == {"x": "applied", "merge": "m", "strategic": "s"}


def test_binding_is_a_subresource(real_cluster: Path) -> None:
    async def body(client: KubeClient, ns: str) -> str:
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        await client.create(kinds.PODS, pod, ns)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "p"},
            "target": {"kind": "Node", "name": "somewhere"},
        }
        response = await client.create(kinds.PODS, binding, ns, name="p", subresource="binding")
        bound = await client.get(kinds.PODS, "p", ns)
        await client.delete(kinds.PODS, "p", ns, grace_period_seconds=0)
        assert response.kind == "Status"
        return bound.spec.node_name

    assert within(real_cluster, body) == "somewhere"


def test_selectors_and_pages(real_cluster: Path) -> None:
    async def body(client: KubeClient, ns: str) -> None:
        await asyncio.gather(*(client.create(kinds.CONFIG_MAPS, config_map(f"a{number}"), ns) for number in range(25)))
        page = await client.list(kinds.CONFIG_MAPS, ns, limit=10)
        assert (len(page.items), page.remaining, bool(page.continue_token)) == (10, 15, True)
        everything = await list_all(client, kinds.CONFIG_MAPS, ns, limit=10)
        assert len({item.metadata.uid for item in everything.items}) == 25
        by_label = await client.list(kinds.CONFIG_MAPS, ns, label_selector="n in (a1,a2)")
        assert sorted(item.metadata.name for item in by_label.items) == ["a1", "a2"]
        by_field = await client.list(kinds.CONFIG_MAPS, ns, field_selector="metadata.name=a3")
        assert [item.metadata.name for item in by_field.items] == ["a3"]
        await client.delete_collection(kinds.CONFIG_MAPS, ns, label_selector="n!=a4")
        assert [item.metadata.name for item in (await client.list(kinds.CONFIG_MAPS, ns)).items] == ["a4"]

    within(real_cluster, body)


def test_watch_sees_each_change_from_a_version_on(real_cluster: Path) -> None:
    async def body(client: KubeClient, ns: str) -> list[tuple[str, dict[str, str]]]:
        start = (await client.list(kinds.CONFIG_MAPS, ns)).resource_version
        await client.create(kinds.CONFIG_MAPS, config_map("a", x="1"), ns)
        await client.patch(kinds.CONFIG_MAPS, "a", {"data": {"x": "2"}}, PatchType.MERGE, ns)
        await client.delete(kinds.CONFIG_MAPS, "a", ns)
        seen: list[tuple[str, dict[str, str]]] = []
        async with aclosing(client.watch(kinds.CONFIG_MAPS, ns, resource_version=start)) as events:
            async for item in events:
                seen.append((item.type, item.object.data))  # type: ignore[union-attr]
                if item.type == "DELETED":
                    break
        return seen

    assert within(real_cluster, body) == [
        ("ADDED", {"x": "1"}),
        ("MODIFIED", {"x": "2"}),
        ("DELETED", {"x": "2"}),
    ]


def test_a_watch_ends_by_itself_with_a_bookmark(real_cluster: Path) -> None:
    async def body(client: KubeClient, ns: str) -> list[str]:
        start = (await client.list(kinds.CONFIG_MAPS, ns)).resource_version
        watch = client.watch(kinds.CONFIG_MAPS, ns, resource_version=start, timeout_seconds=3)
        return [item.type async for item in watch]

    assert set(within(real_cluster, body)) <= {"BOOKMARK"}


def test_a_version_that_is_none_is_a_response(real_cluster: Path) -> None:
    async def body(client: KubeClient, ns: str) -> ApiStatusError:
        with pytest.raises(ApiStatusError, match="Invalid value") as caught:
            async for _ in client.watch(kinds.CONFIG_MAPS, ns, resource_version="nonsense", timeout_seconds=5):
                pass
        return caught.value

    assert not within(real_cluster, body).is_expired


def test_an_unusable_continue_token_is_a_response(real_cluster: Path) -> None:
    async def body(client: KubeClient, ns: str) -> ApiStatusError:
        with pytest.raises(ApiStatusError) as caught:
            await client.list(kinds.CONFIG_MAPS, ns, limit=1, continue_token="nonsense")
        return caught.value

    assert within(real_cluster, body).is_bad_request


def test_hundreds_of_concurrent_creates(real_cluster: Path) -> None:
    async def body(client: KubeClient, ns: str) -> int:
        await asyncio.gather(*(client.create(kinds.CONFIG_MAPS, config_map(f"a{number}"), ns) for number in range(400)))
        return len((await list_all(client, kinds.CONFIG_MAPS, ns, limit=150)).items)

    assert within(real_cluster, body) == 400


def test_versions_and_tokens_expire(real_programs: RealPrograms, tmp_path: Path) -> None:
    plane = ControlPlane(
        real_programs.kubernetes, tmp_path / "plane", extra_arguments=["--etcd-compaction-interval=1s"]
    )

    async def until_token_expires(client: KubeClient, ns: str, token: str) -> ApiStatusError:
        while True:
            try:
                await client.list(kinds.CONFIG_MAPS, ns, limit=1, continue_token=token)
            except ApiStatusError as error:
                return error
            # Compaction keeps what is newer than the last one, so the history has to go on.
            await client.patch(kinds.CONFIG_MAPS, "a", {"data": {"t": uuid.uuid4().hex}}, PatchType.MERGE, ns)
            await asyncio.sleep(0.3)

    async def body(client: KubeClient, ns: str) -> None:
        for name in ("a", "b", "c"):
            await client.create(kinds.CONFIG_MAPS, config_map(name), ns)
        page = await client.list(kinds.CONFIG_MAPS, ns, limit=1)
        assert (await until_token_expires(client, ns, page.continue_token)).is_expired
        # A restarted server has no history of its own, and etcd has forgotten that part of it.
        await asyncio.to_thread(plane.kill_api_server)
        await asyncio.to_thread(plane.start_api_server)
        with pytest.raises(ApiStatusError) as caught:
            async for _ in client.watch(kinds.CONFIG_MAPS, ns, resource_version=page.resource_version):
                pass
        assert caught.value.is_expired

    with plane:
        within(plane.kubeconfig, body)
