"""Which account a pod acts as, and where its containers find the token."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koordinator.base.clock import ManualClock
from koordinator.cluster.server import ServerOptions
from tests.cluster.embedded import HttpResponse, embedded_api, pod

Document = dict[str, Any]
_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
_PODS = "/api/v1/namespaces/default/pods"


def _created(account: Document | None, **spec: Any) -> HttpResponse:
    """The response to a pod where the namespace has this account beside the default one."""

    async def main() -> HttpResponse:
        async with embedded_api(ServerOptions(workload_controllers=True)) as client:
            for each in ({"metadata": {"name": "default"}}, account):
                if each is not None:
                    await client.request("POST", _ACCOUNTS, each)
            body = pod("p")
            return await client.request("POST", _PODS, {**body, "spec": {**body["spec"], **spec}})

    return asyncio.run(main())


def _spec(account: Document | None = None, **spec: Any) -> Document:
    response = _created(account, **spec)
    assert response.status == 201, response.body
    found: Document = response.body["spec"]
    return found


def test_a_pod_gets_the_default_account_and_its_token() -> None:
    spec = _spec()
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    mount = {"name": volume["name"], "readOnly": True, "mountPath": _PATH}
    assert [container["volumeMounts"] for container in spec["containers"]] == [[mount]]


def test_a_container_that_has_something_there_keeps_it() -> None:
    own = {"name": "own", "mountPath": _PATH}
    containers = [{"name": "a", "image": "i", "volumeMounts": [own]}, {"name": "b", "image": "i"}]
    spec = _spec(containers=containers, volumes=[{"name": "own", "emptyDir": {}}])
    mounted = [[mount["name"] for mount in container["volumeMounts"]] for container in spec["containers"]]
    assert mounted == [["own"], [spec["volumes"][1]["name"]]]


@pytest.mark.parametrize(
    ("of_account", "of_pod", "mounted"),
    [(None, None, True), (False, None, False), (False, True, True), (True, False, False)],
)
def test_pod_and_account_say_whether_the_token_is_mounted(
    of_account: bool | None, of_pod: bool | None, mounted: bool
) -> None:
    account: Document = {"metadata": {"name": "robot"}}
    if of_account is not None:
        account["automountServiceAccountToken"] = of_account
    more = {} if of_pod is None else {"automountServiceAccountToken": of_pod}
    spec = _spec(account, serviceAccountName="robot", **more)
    assert spec["serviceAccountName"] == "robot"
    assert bool(spec.get("volumes")) is mounted


def test_a_pod_pulls_images_with_the_secrets_of_its_account() -> None:
    account = {"metadata": {"name": "robot"}, "imagePullSecrets": [{"name": "registry"}]}
    assert _spec(account, serviceAccountName="robot")["imagePullSecrets"] == [{"name": "registry"}]
    own = _spec(account, serviceAccountName="robot", imagePullSecrets=[{"name": "mine"}])
    assert own["imagePullSecrets"] == [{"name": "mine"}]


def test_an_account_that_does_not_exist_is_refused() -> None:
    response = _created(None, serviceAccountName="nope")
    assert response.status == 403
    why = 'error looking up service account default/nope: serviceaccount "nope" not found'
    assert response.body["message"] == f'pods "p" is forbidden: {why}'


def test_the_account_of_a_new_namespace_is_waited_for() -> None:
    async def main() -> int:
        clock = ManualClock()
        async with embedded_api(ServerOptions(workload_controllers=True, clock=clock)) as client:
            creation = asyncio.create_task(client.request("POST", _PODS, pod("p")))
            await clock.advance(0.5)
            await client.request("POST", _ACCOUNTS, {"metadata": {"name": "default"}})
            while not creation.done():
                await clock.advance(0.1)
            return (await creation).status

    assert asyncio.run(main()) == 201


def test_without_controllers_a_pod_needs_no_account() -> None:
    async def main() -> Document:
        async with embedded_api() as client:
            response = await client.request("POST", _PODS, pod("p"))
            found: Document = response.body["spec"]
            return found

    assert "serviceAccountName" not in asyncio.run(main())


def test_an_eviction_is_no_pod() -> None:
    async def main() -> int:
        async with embedded_api(ServerOptions(workload_controllers=True)) as client:
            await client.request("POST", _ACCOUNTS, {"metadata": {"name": "default"}})
            await client.request("POST", _PODS, pod("p"))
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
            return (await client.request("POST", f"{_PODS}/p/eviction", eviction)).status

    assert asyncio.run(main()) == 201
