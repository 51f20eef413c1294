"""A server in RBAC mode: what is refused, in which words, and what nobody can grant."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.cluster.access.bootstrap import AGGREGATE, bootstrap_objects
from koordinator.cluster.access.identity import authenticated
from koordinator.cluster.access.policy import RBAC_GROUP
from tests.cluster.access.rbac_server import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    PODS,
    RBAC,
    ROLES,
    ask,
    binding,
    grant,
    role,
    rule,
    run,
    until_role,
)
from tests.cluster.certificate_requests import request_spec
from tests.cluster.embedded import ApiClient, HttpResponse, pod

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CAN_I = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@pytest.mark.parametrize(
    ("method", "path", "message", "details"),
    [
        (
            "GET",
            PODS,
            'pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default"',
            {"kind": "pods"},
        ),
        (
            "GET",
            f"{PODS}/x",
            'pods "x" is forbidden: User "bob" cannot get resource "pods" in API group "" in the namespace "default"',
            {"name": "x", "kind": "pods"},
        ),
        (
            "GET",
            f"{PODS}?fieldSelector=metadata.name=x&watch=1",
            'pods "x" is forbidden: User "bob" cannot watch resource "pods" in API group "" in the namespace "default"',
            {"name": "x", "kind": "pods"},
        ),
        (
            "GET",
            "/api/v1/namespaces/default",
            'namespaces "default" is forbidden: User "bob" cannot get resource "namespaces" in API group "" in the '
            'namespace "default"',
            {"name": "default", "kind": "namespaces"},
        ),
        (
            "GET",
            "/api/v1/nodes/x/proxy/a/b",
            'nodes "x" is forbidden: User "bob" cannot get resource "nodes/proxy" in API group "" at the cluster scope',
            {"name": "x", "kind": "nodes"},
        ),
        (
            "DELETE",
            "/apis/apps/v1/deployments",
            'deployments.apps is forbidden: User "bob" cannot deletecollection resource "deployments" in API group '
            '"apps" at the cluster scope',
            {"group": "apps", "kind": "deployments"},
        ),
        (
            "GET",
            "/apis/apps/v1/watch/namespaces/default/deployments",
            'deployments.apps is forbidden: User "bob" cannot watch resource "deployments" in API group "apps" in the '
            'namespace "default"',
            {"group": "apps", "kind": "deployments"},
        ),
        ("GET", "/metrics", 'forbidden: User "bob" cannot get path "/metrics"', {}),
    ],
)
def test_a_refusal_has_the_words_of_the_real_server(
    method: str, path: str, message: str, details: dict[str, str]
) -> None:
    response = run(lambda client: ask(client, "bob", method, path))
    assert (response.status, response.body["reason"]) == (403, "Forbidden")
    assert (response.body["message"], response.body["details"]) == (message, details)


def test_discovery_is_for_everybody_with_a_credential_and_health_for_all() -> None:
    async def scenario(client: ApiClient) -> list[tuple[int, int]]:
        paths = ("/apis", "/openapi/v3", "/version", "/readyz", "/metrics")
        found = []
        for path in paths:
            known = await ask(client, "bob", "GET", path)
            unknown = await client.request("GET", path, Authorization="Basic eA==")
            found.append((known.status, unknown.status))
        return found

    assert run(scenario) == [(200, 403), (200, 403), (200, 200), (200, 200), (403, 403)]


def test_a_wrong_token_is_not_taken_for_none() -> None:
    response = run(lambda client: client.request("GET", "/readyz", Authorization="Bearer wrong"))
    assert (response.status, response.body["reason"]) == (401, "Unauthorized")


def test_a_role_holds_from_the_next_request_on_and_no_longer_than_its_binding() -> None:
    async def scenario(client: ApiClient) -> list[int]:
        await grant(client, "bob", rule("get list", "pods"))
        permitted = await ask(client, "bob", "GET", PODS)
        elsewhere = await ask(client, "bob", "GET", "/api/v1/namespaces/kube-system/pods")
        await client.request("DELETE", f"{BINDINGS}/of-bob")
        return [permitted.status, elsewhere.status, (await ask(client, "bob", "GET", PODS)).status]

    assert run(scenario) == [200, 403, 403]


def test_view_has_the_rules_of_what_is_aggregated_to_it() -> None:
    async def scenario(client: ApiClient) -> tuple[Any, Any, Any]:
        mine = role("mine", rule("get", "things", "example.com"), **{f"{AGGREGATE}view": "true"})
        await client.post(CLUSTER_ROLES, mine)

        def has_mine(found: Any) -> bool:
            return mine["rules"][0] in (found.get("rules") or ())

        # edit has the label of view, and admin that of edit.
        view, admin = [await until_role(client, name, has_mine) for name in ("view", "admin")]
        await client.request("DELETE", f"{CLUSTER_ROLES}/mine")
        return view, admin, await until_role(client, "admin", lambda found: not has_mine(found))

    view, admin, later = run(scenario)
    assert rule("get list watch", "namespaces") in view["rules"]
    assert len(admin["rules"]) > len(view["rules"])
    assert len(later["rules"]) == len(admin["rules"]) - 1


def _create_role(body: Any, *rules: Any, path: str = CLUSTER_ROLES) -> HttpResponse:
    """As jane, who may write roles and bindings, and has ``rules``."""

    async def scenario(client: ApiClient) -> HttpResponse:
        writes = rule("create update patch get", "roles rolebindings clusterroles clusterrolebindings", RBAC_GROUP)
        await grant(client, "jane", writes, *rules, cluster=True)
        return await ask(client, "jane", "POST", path, body)

    return run(scenario)


def test_nobody_makes_a_role_of_what_they_do_not_hold() -> None:
    body = role("r", rule("get list", "pods secrets"), rule("get", "pods", "", "x"))
    response = _create_role(body, rule("get", "pods"))
    assert response.status == 403
    assert response.body["message"] == (
        'clusterroles.rbac.authorization.k8s.io "r" is forbidden: user "jane" (groups=["system:authenticated"]) is '
        "attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["pods"], Verbs:["list"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}'
    )


@pytest.mark.parametrize(
    "own", [rule("get", "pods"), rule("escalate", "clusterroles", RBAC_GROUP), rule("*", "*", "*")]
)
def test_who_holds_it_or_may_escalate_makes_the_role(own: Any) -> None:
    assert _create_role(role("r", rule("get", "pods")), own).status == 201


def test_a_role_that_aggregates_is_for_administrators() -> None:
    body = {**role("r"), "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    response = _create_role(body, rule("get", "pods"))
    assert response.status == 403
    assert response.body["message"].endswith("must have cluster-admin privileges to use the aggregationRule")


@pytest.mark.parametrize(
    ("own", "status"),
    [
        (rule("get", "pods"), 403),
        (rule("bind", "clusterroles", RBAC_GROUP, "view"), 201),
        (rule("bind", "clusterroles", RBAC_GROUP, "edit"), 403),
        (rule("*", "*", "*"), 201),
    ],
)
def test_nobody_binds_a_role_that_they_neither_hold_nor_may_bind(own: Any, status: int) -> None:
    async def scenario(client: ApiClient) -> int:
        await until_role(client, "view", lambda found: bool(found.get("rules")))
        await grant(client, "jane", rule("create", "rolebindings", RBAC_GROUP), own, cluster=True)
        body = binding("b", "ClusterRole", "view", "eve")
        return (await ask(client, "jane", "POST", BINDINGS, body)).status

    assert run(scenario) == status


def test_a_binding_to_no_role_is_not_found() -> None:
    response = _create_role(binding("b", "ClusterRole", "gone", "eve"), path=CLUSTER_BINDINGS)
    assert (response.status, response.body["reason"]) == (404, "NotFound")
    assert response.body["message"] == f'clusterrolebindings.{RBAC_GROUP} "gone" not found'


def test_an_update_that_grants_nothing_more_is_permitted() -> None:
    async def scenario(client: ApiClient) -> list[int]:
        await client.post(ROLES, role("r", rule("get", "secrets")))
        await grant(client, "jane", rule("get patch", "roles", RBAC_GROUP))
        patches: tuple[Any, ...] = (
            {"metadata": {"labels": {"a": "b"}}},
            {"rules": []},
            {"rules": [rule("get", "secrets")]},
        )
        type_ = "application/merge-patch+json"
        return [
            (await client.request("PATCH", f"{ROLES}/r", patch, content_type=type_, Impersonate_User="jane")).status
            for patch in patches
        ]

    assert run(scenario) == [200, 200, 403]


def test_who_may_impersonate_acts_as_that_user_alone() -> None:
    async def scenario(client: ApiClient) -> list[int]:
        await grant(client, "jane", rule("impersonate", "users", "", "bob"), cluster=True)
        await grant(client, "bob", rule("list", "pods"))
        token = "jane-token"
        found = []
        for headers in ({}, {"Impersonate-User": "bob"}, {"Impersonate-User": "eve"}):
            response = await client.request("GET", PODS, Authorization=f"Bearer {token}", **headers)
            found.append(response.status)
        with_group = {"Impersonate-User": "bob", "Impersonate-Group": "system:masters"}
        found.append((await client.request("GET", PODS, Authorization=f"Bearer {token}", **with_group)).status)
        return found

    assert run(scenario, users={"jane-token": authenticated("jane", ())}) == [403, 200, 403, 403]


def test_can_i_says_what_requests_would_find() -> None:
    async def scenario(client: ApiClient) -> list[Any]:
        await grant(client, "bob", rule("get", "pods", "", "x"))
        found = []
        for name in ("x", "y"):
            attributes = {"verb": "get", "resource": "pods", "namespace": "default", "name": name}
            spec = {"spec": {"resourceAttributes": attributes}}
            found.append((await ask(client, "bob", "POST", CAN_I, spec)).body["status"])
        return found

    why = 'RBAC: allowed by RoleBinding "of-bob/default" of Role "of-bob" to User "bob"'
    assert run(scenario) == [{"allowed": True, "reason": why}, {"allowed": False}]


def test_the_rules_of_a_user_are_listed() -> None:
    async def scenario(client: ApiClient) -> Any:
        await grant(client, "bob", rule("get", "pods"))
        await client.post(BINDINGS, binding("lost", "Role", "gone", "bob"))
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        return (await ask(client, "bob", "POST", path, {"spec": {"namespace": "default"}})).body["status"]

    status = run(scenario)
    assert rule("get", "pods") in status["resourceRules"]
    assert {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]} in (
        status["nonResourceRules"]
    )
    assert (status["incomplete"], status["evaluationError"]) == (False, f'role.{RBAC_GROUP} "gone" not found')


def test_the_roles_that_every_cluster_has_are_put_back_and_completed() -> None:
    async def scenario(client: ApiClient) -> list[Any]:
        found = []
        for kind, namespace, document in bootstrap_objects():
            where = f"{RBAC}/namespaces/{namespace}/{kind}" if namespace else f"{RBAC}/{kind}"
            found.append((document, await client.get(f"{where}/{document['metadata']['name']}")))
        return found

    for wanted, found in run(scenario):
        assert found["metadata"]["labels"] == wanted["metadata"]["labels"]
        assert found.get("subjects", []) == wanted.get("subjects", [])
        if "aggregationRule" not in wanted and "roleRef" not in wanted:
            assert found["rules"] == wanted["rules"]


def test_a_start_puts_back_what_was_taken_from_a_role_unless_it_says_not_to(tmp_path: Any) -> None:
    merge = "application/merge-patch+json"
    keep = {"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}, "rules": []}

    async def damage(client: ApiClient) -> None:
        for name, patch in (("system:basic-user", {"rules": []}), ("system:discovery", keep)):
            await client.request("PATCH", f"{CLUSTER_ROLES}/{name}", patch, content_type=merge)
        await client.request("DELETE", f"{CLUSTER_ROLES}/system:monitoring")

    async def look(client: ApiClient) -> list[int]:
        names = ("system:basic-user", "system:discovery", "system:monitoring")
        return [len((await client.get(f"{CLUSTER_ROLES}/{name}")).get("rules") or ()) for name in names]

    run(damage, data=tmp_path / "data")
    assert run(look, data=tmp_path / "data") == [3, 0, 2]  # a rule for each resource that was missing


def test_a_certificate_request_says_who_sent_it() -> None:
    async def scenario(client: ApiClient) -> Any:
        await grant(client, "bob", rule("create", "certificatesigningrequests", "certificates.k8s.io"), cluster=True)
        spec = request_spec()
        path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
        return (await ask(client, "bob", "POST", path, {"metadata": {"name": "c"}, "spec": spec})).body["spec"]

    spec = run(scenario)
    assert (spec["username"], spec["groups"]) == ("bob", ["system:authenticated"])


def test_an_eviction_needs_its_own_right() -> None:
    async def scenario(client: ApiClient) -> list[int]:
        await client.post(PODS, pod("p"))
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        await grant(client, "bob", rule("create", "pods/eviction"))
        return [
            (await ask(client, "bob", "POST", f"{PODS}/p/{subresource}", body)).status
            for subresource, body in (("binding", {"target": {"name": "n"}}), ("eviction", eviction))
        ]

    assert run(scenario) == [403, 201]


@pytest.mark.parametrize(("verbs", "status"), [("patch", 403), ("patch create", 201)])
def test_an_apply_that_creates_needs_the_right_to_create(verbs: str, status: int) -> None:
    async def scenario(client: ApiClient) -> HttpResponse:
        await grant(client, "bob", rule(verbs, "configmaps"))
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "b"}}
        return await client.request(
            "PATCH",
            f"{CONFIG_MAPS}/x?fieldManager=bob",
            body,
            Impersonate_User="bob",
            content_type="application/apply-patch+yaml",
        )

    response = run(scenario)
    assert response.status == status, response.body
    if status == 403:
        assert 'User "bob" cannot create resource "configmaps"' in response.body["message"]
