"""What every namespace has: the default account, and the certificate of the authority."""

from __future__ import annotations

from dataclasses import replace

from koordinator.api.kinds import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.each_namespace import DefaultAccountController, RootAuthorityController
from koordinator.kube.interface import PatchType
from koordinator.kube.reconciler import Controller
from tests.cluster.controllers.running_controllers import Cluster, asynchronous, running_controllers
from tests.waiting import wait_for

_ROOT = "kube-root-ca.crt"


def _publisher(context: ControllerContext) -> Controller:
    return RootAuthorityController(replace(context, authority="PEM"))


def _has(cluster: Cluster, namespace: str) -> bool:
    account = cluster.api.found(SERVICE_ACCOUNTS, "default", namespace)
    certificate = cluster.api.found(CONFIG_MAPS, _ROOT, namespace)
    return account is not None and certificate is not None and certificate["data"] == {"ca.crt": "PEM"}


async def _keep() -> None:
    async with running_controllers(DefaultAccountController, _publisher) as cluster:
        await wait_for(lambda: _has(cluster, "default"))
        await cluster.client.create(NAMESPACES, {"metadata": {"name": "team"}})
        await wait_for(lambda: _has(cluster, "team"))
        uid = cluster.api.document(SERVICE_ACCOUNTS, "default", "team")["metadata"]["uid"]
        await cluster.client.delete(SERVICE_ACCOUNTS, "default", "team")
        await cluster.client.delete(CONFIG_MAPS, _ROOT, "team")
        await wait_for(lambda: _has(cluster, "team"))
        assert cluster.api.document(SERVICE_ACCOUNTS, "default", "team")["metadata"]["uid"] != uid
        other = {"data": {"ca.crt": "other", "more": "x"}}
        await cluster.client.patch(CONFIG_MAPS, _ROOT, other, PatchType.MERGE, "team")
        await wait_for(lambda: _has(cluster, "team"))


def test_every_namespace_gets_them_and_gets_them_back() -> None:
    asynchronous(_keep)()


async def _no_authority() -> None:
    async with running_controllers(DefaultAccountController, RootAuthorityController) as cluster:
        await cluster.client.create(NAMESPACES, {"metadata": {"name": "team"}})
        await wait_for(lambda: cluster.api.found(SERVICE_ACCOUNTS, "default", "team") is not None)
        assert cluster.api.found(CONFIG_MAPS, _ROOT, "team") is None


def test_without_a_known_authority_nothing_is_published() -> None:
    asynchronous(_no_authority)()
