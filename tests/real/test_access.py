"""Who may do what, by the embedded API and by a real kube-apiserver: the same roles, questions, words.

No controller manager runs beside the real one, so that its ClusterRoles with an aggregationRule stay empty; the
embedded server is told to leave them so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from koordinator.cluster.access.authorizer import AuthorizationMode
from koordinator.cluster.access.policy import RBAC_GROUP
from koordinator.cluster.server import ServerOptions
from tests.cluster.embedded_thread import embedded_server
from tests.real.administrator import Administrator
from tests.real.control_plane import TOKEN, ControlPlane
from tests.real.programs import RealPrograms

RBAC = f"/apis/{RBAC_GROUP}/v1"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
Answer = tuple[int, Any]
Both = tuple[Administrator, Administrator]
"""The real server and the embedded one."""
_SEED = 20
_QUESTIONS = 3000
_GRANTS = 150
_PATIENCE = 20.0
"""Seconds. The real server learns of a role a moment after it was written."""
NAMESPACES = ("one", "two")
NAMES = ("a", "b", "c", "d")
GROUPS = ("staff", "system:authenticated", "system:serviceaccounts", "system:serviceaccounts:one")
USERS = (*NAMES, "system:serviceaccount:one:a", "system:serviceaccount:two:b")
VERBS, API_GROUPS = ("get", "list", "create", "delete", "*"), ("", "apps", "example.com", "*")
RESOURCES = ("pods", "pods/log", "deployments", "deployments/scale", "things", "*", "*/scale", "*/log")
PATHS = ("/metrics", "/healthz/*", "/api", "/logs/*", "/x*", "*")


@pytest.fixture(scope="module")
def both(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("access")
    plane = ControlPlane(real_programs.kubernetes, folder / "cluster", authorization_mode="RBAC")
    options = ServerOptions(authorization_mode=AuthorizationMode.RBAC, role_aggregation=False)
    with plane, embedded_server(folder, options) as kubeconfig:
        document = yaml.safe_load(kubeconfig.read_text())
        port = urlsplit(document["clusters"][0]["cluster"]["server"]).port
        assert port is not None
        real, embedded = (
            Administrator(plane.port, TOKEN),
            Administrator(port, document["users"][0]["user"]["token"]),
        )
        for server, namespace in product((real, embedded), NAMESPACES):
            server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        yield real, embedded
        real.close()
        embedded.close()


def agree(both: Both, ask: Callable[[Administrator], Any], about: Any) -> None:
    """Both say the same, the real one as soon as it has heard of what was written."""
    expected, found = map(ask, both)
    deadline = time.monotonic() + _PATIENCE
    while expected != found and time.monotonic() < deadline:
        time.sleep(0.1)
        expected = ask(both[0])
    assert found == expected, about


def test_the_roles_that_every_cluster_has_are_the_same(both: Both) -> None:
    for plural in ("clusterroles", "clusterrolebindings", "roles", "rolebindings"):
        agree(both, partial(_bare, plural=plural), plural)


def _bare(server: Administrator, plural: str) -> dict[str, Any]:
    """The objects by name, without what a server adds."""
    listed = server.request("GET", f"{RBAC}/{plural}")[1]
    kept = ("labels", "annotations")
    return {
        f"{each['metadata'].get('namespace', '')}/{each['metadata']['name']}": (
            {field: each["metadata"].get(field) for field in kept},
            {field: each.get(field) or None for field in ("rules", "aggregationRule", "roleRef", "subjects")},
        )
        for each in listed["items"]
    }


def some(random: Random, values: Sequence[str], most: int = 3) -> list[str]:
    return random.sample(values, random.randint(1, min(most, len(values))))


def rule(random: Random, *, paths: bool) -> dict[str, Any]:
    verbs = some(random, VERBS, 2)
    if paths and random.random() < 0.25:
        return {"verbs": verbs, "nonResourceURLs": some(random, PATHS)}
    found = {"verbs": verbs, "apiGroups": some(random, API_GROUPS, 2), "resources": some(random, RESOURCES)}
    return {**found, "resourceNames": some(random, ("x", "y"))} if random.random() < 0.3 else found


def subject(random: Random, *, namespaced: bool) -> dict[str, Any]:
    kind = random.choice(("User", "Group", "ServiceAccount"))
    if kind != "ServiceAccount":
        return {"kind": kind, "apiGroup": RBAC_GROUP, "name": random.choice(USERS if kind == "User" else GROUPS)}
    account = {"kind": kind, "name": random.choice(NAMES)}
    # In a RoleBinding, an account without a namespace is one of the binding's.
    return account if namespaced and random.random() < 0.5 else {**account, "namespace": random.choice(NAMESPACES)}


def written(random: Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """The path and the body of every object; some bindings name roles that are not there."""
    for name in NAMES[:3]:
        rules = [rule(random, paths=True) for _ in range(random.randint(2, 5))]
        yield f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules}
        for namespace in NAMESPACES:
            rules = [rule(random, paths=False) for _ in range(random.randint(1, 4))]
            yield f"{RBAC}/namespaces/{namespace}/roles", {"metadata": {"name": name}, "rules": rules}
    for number in range(40):
        namespace = random.choice(("", *NAMESPACES))
        kind = random.choice(("Role", "ClusterRole")) if namespace else "ClusterRole"
        body = {
            "metadata": {"name": f"b{number}"},
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": random.choice(NAMES)},
            "subjects": [subject(random, namespaced=bool(namespace)) for _ in range(random.randint(1, 3))],
        }
        where = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
        yield f"{RBAC}/{where}", body


def question(random: Random) -> dict[str, Any]:
    user: dict[str, Any] = {"user": random.choice(USERS), "groups": random.sample(GROUPS, random.randint(0, 2))}
    if random.random() < 0.2:
        path = random.choice(("/metrics", "/healthz", "/healthz/etcd", "/api", "/logs/a", "/xyz", "/version"))
        return {**user, "nonResourceAttributes": {"verb": random.choice(VERBS[:4]), "path": path}}
    fields = {
        "verb": random.choice(VERBS),
        "group": random.choice(API_GROUPS),
        "resource": random.choice(("pods", "deployments", "things", "*")),
        "subresource": random.choice(("", "", "log", "scale")),
        "namespace": random.choice(("", *NAMESPACES, "three")),
        "name": random.choice(("", "x", "z")),
    }
    return {**user, "resourceAttributes": {name: value for name, value in fields.items() if value}}


def decided(server: Administrator, spec: dict[str, Any]) -> Any:
    """Which of several bindings permits it is a matter of chance on the real server, as is the order of what is missing
    where nothing does."""
    status, review = server.request("POST", f"{AUTHORIZATION}/subjectaccessreviews", {"spec": spec})
    found = review["status"]
    reason = found.get("reason", "")
    if not found["allowed"]:
        return status, False, sorted(reason.removeprefix("RBAC: ").strip("[]").split(", "))
    return status, True, reason.partition("allowed by")[:2]


def held(server: Administrator, user: str, namespace: str) -> Any:
    path = f"{AUTHORIZATION}/selfsubjectrulesreviews"
    status = server.request("POST", path, {"spec": {"namespace": namespace}}, user=user)[1]["status"]
    lists = [sorted(map(str, status[name])) for name in ("resourceRules", "nonResourceRules")]
    return lists, status["incomplete"], sorted(status.get("evaluationError", "").strip("[]").split(", "))


def test_generated_roles_permit_the_same(both: Both) -> None:
    random = Random(_SEED)
    for path, body in written(random):
        for server in both:
            status, response = server.request("POST", path, body)
            assert status == 201, response
    allowed = 0
    for spec in [question(random) for _ in range(_QUESTIONS)]:
        agree(both, partial(decided, spec=spec), spec)
        allowed += decided(both[1], spec)[1]
    assert _QUESTIONS // 10 < allowed < _QUESTIONS * 9 // 10
    for user, namespace in product(USERS, NAMESPACES):
        agree(both, partial(held, user=user, namespace=namespace), (user, namespace))


def test_nobody_grants_more_than_they_hold_on_either(both: Both) -> None:
    """Needs the roles of the test before. Who tries may write roles and bindings everywhere."""
    random = Random(_SEED + 1)
    writes = {"verbs": ["create"], "apiGroups": [RBAC_GROUP], "resources": ["*"]}
    subjects = [{"kind": "User", "apiGroup": RBAC_GROUP, "name": user} for user in USERS]
    reference = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "writers"}
    for server in both:
        server.request("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "writers"}, "rules": [writes]})
        body = {"metadata": {"name": "writers"}, "roleRef": reference, "subjects": subjects}
        server.request("POST", f"{RBAC}/clusterrolebindings", body)
    statuses = set()
    for number in range(_GRANTS):
        user = random.choice(USERS)
        path, body = grant(random, number)
        agree(both, partial(refused, path=path, body=body, user=user), (user, path, body))
        statuses.add(refused(both[1], path, body, user)[0])
    assert {201, 403} <= statuses


def grant(random: Random, number: int) -> tuple[str, dict[str, Any]]:
    """A role or a binding that somebody wants to make; it is tried without being stored."""
    namespace = random.choice(("", *NAMESPACES))
    where, prefix = (f"namespaces/{namespace}/", "") if namespace else ("", "cluster")
    metadata = {"name": f"made-{number}"}
    if random.random() < 0.5:
        rules = [rule(random, paths=not namespace) for _ in range(random.randint(0, 2))]
        return f"{RBAC}/{where}{prefix}roles?dryRun=All", {"metadata": metadata, "rules": rules}
    kind = random.choice(("Role", "ClusterRole")) if namespace else "ClusterRole"
    reference = {"apiGroup": RBAC_GROUP, "kind": kind, "name": random.choice((*NAMES, "system:discovery", "writers"))}
    return f"{RBAC}/{where}{prefix}rolebindings?dryRun=All", {"metadata": metadata, "roleRef": reference}


def refused(server: Administrator, path: str, body: dict[str, Any], user: str) -> Answer:
    status, response = server.request("POST", path, body, user=user)
    message = response.get("message", "").partition("; resolution errors")[0]
    return status, (message, response.get("details")) if status != 201 else None


REQUESTS = (
    ("GET", "/api/v1/namespaces/one/pods"),
    ("GET", "/api/v1/namespaces/one/pods/p"),
    ("GET", "/api/v1/namespaces/one/pods?watch=true&fieldSelector=metadata.name%3Dp"),
    ("GET", "/api/v1/namespaces/one/pods?fieldSelector=metadata.name%3Dp%2Cspec.nodeName%3Dn"),
    ("GET", "/api/v1/pods"),
    ("GET", "/api/v1/namespaces/three"),
    ("GET", "/api/v1/namespaces/three/pods"),
    ("PUT", "/api/v1/namespaces/one/status"),
    ("GET", "/api/v1/nodes/n/proxy/a/b"),
    ("POST", "/api/v1/namespaces/one/pods/p/binding"),
    ("POST", "/api/v1/namespaces/one/serviceaccounts/s/token"),
    ("PATCH", "/apis/apps/v1/namespaces/one/deployments/d/scale"),
    ("DELETE", "/apis/apps/v1/namespaces/one/deployments"),
    ("DELETE", "/apis/apps/v1/namespaces/one/deployments/d"),
    ("GET", "/apis/apps/v1/watch/namespaces/one/deployments/d"),
    ("GET", "/apis/no.such/v1/things"),
    ("GET", "/metrics"),
    ("GET", "/"),
    ("POST", "/version"),
    ("GET", "/logs/x"),
)


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_a_refusal_has_the_same_words(both: Both, method: str, path: str) -> None:
    def ask(server: Administrator) -> Answer:
        return server.request(method, path, {} if method in ("PUT", "POST", "PATCH") else None, user="nobody")

    agree(both, ask, path)


_PODS = {"verb": "get", "resource": "pods"}
REVIEWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("subjectaccessreviews", {}),
    ("subjectaccessreviews", {"user": "a"}),
    ("subjectaccessreviews", {"resourceAttributes": _PODS}),
    ("subjectaccessreviews", {"user": "a", "resourceAttributes": _PODS, "nonResourceAttributes": {"path": "/"}}),
    ("namespaces/one/localsubjectaccessreviews", {"user": "a", "resourceAttributes": {**_PODS, "namespace": "two"}}),
    ("namespaces/one/localsubjectaccessreviews", {"user": "a", "resourceAttributes": _PODS}),
    ("namespaces/one/localsubjectaccessreviews", {"user": "a", "nonResourceAttributes": {"path": "/"}}),
    ("selfsubjectaccessreviews", {}),
    ("selfsubjectrulesreviews", {}),
)


@pytest.mark.parametrize(("path", "spec"), REVIEWS)
def test_a_review_that_says_too_little_is_refused_alike(both: Both, path: str, spec: dict[str, Any]) -> None:
    namespace = {"metadata": {"namespace": "one"}} if path.startswith("namespaces") else {}
    agree(both, lambda server: server.request("POST", f"{AUTHORIZATION}/{path}", {**namespace, "spec": spec}), spec)
