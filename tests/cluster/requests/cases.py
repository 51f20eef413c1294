"""Requests that no well-made client sends, by what is odd about them. Those of one case build on each other."""

from __future__ import annotations

from typing import Any, Final

from tests.cluster.requests.exchange import Request

_MEBIBYTE: Final = 1 << 20
_JSON_PATCH: Final[dict[str, str | bytes]] = {"Content-Type": "application/json-patch+json"}
_MERGE_PATCH: Final[dict[str, str | bytes]] = {"Content-Type": "application/merge-patch+json"}
_STRATEGIC_PATCH: Final[dict[str, str | bytes]] = {"Content-Type": "application/strategic-merge-patch+json"}
_YAML: Final[dict[str, str | bytes]] = {"Content-Type": "application/yaml"}
_HTML: Final[dict[str, str | bytes]] = {"Accept": "text/html"}
_DRY: Final = "configmaps?dryRun=All"


def config_map(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **fields}


def _made(*requests: Request) -> list[Request]:
    """After the creation of a ConfigMap ``a``."""
    return [Request("POST", "configmaps", config_map("a", data={"x": "y" * 1000})), *requests]


def _deletions(*bodies: Any) -> list[Request]:
    return _made(*(Request("DELETE", "configmaps/a", body) for body in bodies))


def _patches(headers: dict[str, str | bytes], *bodies: Any, exact: bool = True) -> list[Request]:
    return _made(*(Request("PATCH", "configmaps/a?dryRun=All", body, headers, exact) for body in bodies))


def _creations(*bodies: Any, headers: dict[str, str | bytes] | None = None, exact: bool = True) -> list[Request]:
    return [Request("POST", _DRY, body, headers or {}, exact) for body in bodies]


def _lists(*queries: str) -> list[Request]:
    return [Request("GET", f"configmaps?{query}") for query in queries]


def _authorizations(*values: str | bytes) -> list[Request]:
    return [Request("GET", "configmaps", None, {"Authorization": value}) for value in values]


def _nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


CASES: Final[dict[str, list[Request]]] = {
    "authorization": _authorizations(
        "Bearer wrong",
        "Basic eA==",
        "Bearer",
        "wrong",
        b"Bearer \xff\xfe",
        b"\xff",
        "Bearer  wrong",
        "Bearer wrong x",
        "",
    ),
    "not-acceptable": _made(
        Request("POST", "configmaps", config_map("b"), _HTML),
        Request("GET", "configmaps/b"),
        Request("PUT", "configmaps/a", config_map("a"), _HTML),
        Request("PATCH", "configmaps/a", {"data": None}, {**_MERGE_PATCH, **_HTML}),
        Request("DELETE", "configmaps/a", None, _HTML),
        Request("DELETE", "configmaps", None, _HTML),
        Request("GET", "configmaps/a"),
        Request("GET", "configmaps/missing", None, _HTML),
        Request("GET", "configmaps", None, {"Accept": ";;;,"}),
        Request("GET", "configmaps/a", None, {"Accept": "application/json;as=Table;v=v9;g=meta.k8s.io"}),
        Request("POST", "pods/x/binding", {"target": {"name": "n"}}, _HTML),
        Request("POST", "pods/x/eviction", config_map("x"), _HTML),
        Request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {}}, _HTML),
        Request("GET", "/version", None, _HTML),
        Request("GET", "/apis", None, _HTML, exact=False),
    ),
    "not-allowed": _made(
        Request("PUT", "configmaps", config_map("a")),
        Request("POST", "configmaps/a", config_map("a")),
        Request("OPTIONS", "configmaps"),
        Request("HEAD", "configmaps/a"),
        Request("DELETE", "pods/x/status"),
        Request("DELETE", "/api/v1/namespaces"),
        Request("GET", "/api/v1/namespaces/$namespace"),
        Request("POST", "/version", {}),
    ),
    "not-found": _made(
        Request("GET", "configmaps/a/foo"),
        Request("GET", "configmaps/a/status"),
        Request("GET", "/api/v1/nothings"),
        Request("GET", "/api/v1/configmaps/a"),
        Request("GET", "configmaps/missing"),
        Request("GET", "/api/v1/nodes/missing"),
        Request("GET", "/apis/apps/v1/namespaces/$namespace/deployments/missing"),
        Request("GET", "/apis/apps/v1/namespaces/$namespace/deployments/missing/scale"),
        Request("DELETE", "configmaps/missing"),
        Request("PUT", "configmaps/missing", config_map("missing")),
        Request("PATCH", "configmaps/missing", {}, _MERGE_PATCH),
        Request("POST", "/api/v1/namespaces/no-such-namespace/configmaps", config_map("a")),
        Request("POST", "pods/missing/binding", {"metadata": {"name": "missing"}, "target": {"name": "n"}}),
        Request("POST", "pods/missing/eviction", config_map("missing")),
    ),
    "conflict": _made(
        Request("POST", "configmaps", config_map("a")),
        Request("PUT", "configmaps/a", {"metadata": {"name": "a", "resourceVersion": "1"}}),
        Request("PUT", "configmaps/a", {"metadata": {"name": "a", "uid": "x"}}),
        Request("PATCH", "configmaps/a", {"metadata": {"resourceVersion": "1"}}, _MERGE_PATCH),
        Request("DELETE", "configmaps/a", {"preconditions": {"uid": "x"}}),
        Request("DELETE", "configmaps/a", {"preconditions": {"resourceVersion": "1"}}, exact=False),
    ),
    "unsupported-media-type": _made(
        Request("POST", _DRY, "x", {"Content-Type": "text/plain"}),
        Request("POST", _DRY, "{}", {"Content-Type": "///;;"}),
        Request("PUT", "configmaps/a", "x", {"Content-Type": "text/plain"}),
        Request("DELETE", "configmaps/a", "x", {"Content-Type": "text/plain"}),
        Request("DELETE", "configmaps/a?dryRun=All", None, {"Content-Type": "text/plain"}),
        Request("PATCH", "configmaps/a", "{}", {"Content-Type": "text/plain"}, exact=False),
        Request("PATCH", "configmaps/a", "{}", {"Content-Type": "application/json"}, exact=False),
        Request("PATCH", "configmaps/a", "{}", {"Content-Type": ""}, exact=False),
        Request("POST", _DRY, config_map("z"), {"Content-Type": "application/json; charset=latin1"}),
        Request("POST", _DRY, config_map("z"), {"Content-Type": ""}),
    ),
    "too-large": _made(
        Request("POST", _DRY, '{"data":{"a":"' + "x" * (3 * _MEBIBYTE) + '"}}'),
        Request("PUT", "configmaps/a", '{"data":{"a":"' + "x" * (3 * _MEBIBYTE) + '"}}'),
        Request("PATCH", "configmaps/a", '{"data":{"a":"' + "x" * (3 * _MEBIBYTE) + '"}}', _MERGE_PATCH),
        Request("DELETE", "configmaps/a", '{"a":"' + "x" * (3 * _MEBIBYTE) + '"}'),
        Request("POST", _DRY, "x" * (3 * _MEBIBYTE + 1), _YAML),
    ),
    "list-options": [
        *_lists(
            "resourceVersion=x",
            "resourceVersion=99999999999999999999999",
            "resourceVersion=999999999",
            "resourceVersion=-1",
            "resourceVersionMatch=x",
            "resourceVersionMatch=Exact",
            "resourceVersionMatch=Exact&resourceVersion=0",
            "resourceVersionMatch=x&resourceVersion=1",
            "sendInitialEvents=true",
            "sendInitialEvents=x",
            "watch=1&sendInitialEvents=true",
            "watch=1&resourceVersionMatch=Exact&resourceVersion=1",
            "continue=x&resourceVersionMatch=Exact&resourceVersion=5",
            "limit=x",
            "limit=",
            "limit=1_0",
            "limit=%D9%A3",
            "limit=99999999999999999999",
            "limit=-1",
            "timeoutSeconds=x",
            "labelSelector=%3D%3D",
            "fieldSelector=foo",
            "fieldSelector=foo%3Dbar",
        ),
        Request("GET", "configmaps?continue=x", exact=False),
        Request("GET", "configmaps?continue=%C3%A9", exact=False),
    ],
    "write-options": _made(
        Request("POST", "configmaps?dryRun=x", config_map("q")),
        Request("PUT", "configmaps/a?dryRun=x", config_map("a")),
        Request("PATCH", "configmaps/a?dryRun=x", {}, _MERGE_PATCH),
        Request("POST", "configmaps?timeout=x", config_map("q")),
        Request("POST", f"{_DRY}&fieldManager={'x' * 129}", config_map("q")),
        Request("POST", f"{_DRY}&fieldManager=a%07", config_map("q")),
        Request("POST", f"{_DRY}&fieldValidation=x", config_map("q")),
        Request("POST", "configmaps?dryRun=x&fieldValidation=x&fieldManager=a%07", config_map("q")),
        Request("PATCH", "configmaps/a?dryRun=x&fieldValidation=x&force=true", {}, _MERGE_PATCH),
        Request("PUT", "configmaps/a?timeout=x&dryRun=x", config_map("a")),
        Request("POST", "pods/x/eviction?dryRun=x", config_map("x")),
    ),
    "delete-options": [
        *_deletions(
            "{",
            "[]",
            '"x"',
            {"gracePeriodSeconds": "soon"},
            {"gracePeriodSeconds": 1.5},
            '{"gracePeriodSeconds": 1.0}',
            {"gracePeriodSeconds": True},
            '{"gracePeriodSeconds": 99999999999999999999}',
            {"kind": "Pod", "apiVersion": "v1"},
            {"kind": 5},
            {"propagationPolicy": "Sideways"},
            {"orphanDependents": True, "propagationPolicy": "Orphan"},
            {"orphanDependents": "x"},
            {"preconditions": "x"},
            {"preconditions": []},
            {"preconditions": {"resourceVersion": 1}},
            {"dryRun": "All"},
            {"dryRun": ["Some"]},
            {"dryRun": [""]},
            {"dryRun": ["All", "All"]},
            {"kind": "DeleteOptions", "apiVersion": "apps/v1", "dryRun": ["All"]},
            {"kind": "DeleteOptions", "dryRun": ["All"]},
            {"apiVersion": "v1", "dryRun": ["All"]},
            {"foo": 1, "preconditions": {"x": 1}, "dryRun": ["All"]},
            {"gracePeriodSeconds": -1, "dryRun": ["All"]},
        ),
        Request("DELETE", "configmaps/a", {"propagationPolicy": 1}, exact=False),
        Request("DELETE", "configmaps/a", {"preconditions": {"uid": 1}}, exact=False),
        Request("DELETE", "configmaps/a?gracePeriodSeconds=x"),
        Request("DELETE", "configmaps/a?gracePeriodSeconds=1.5"),
        Request("DELETE", "configmaps/a?gracePeriodSeconds=&dryRun=All"),
        Request("DELETE", "configmaps/a?propagationPolicy=x"),
        Request("DELETE", "configmaps/a?dryRun=x"),
        Request("DELETE", "configmaps/a?orphanDependents=true&propagationPolicy=Orphan"),
        Request("DELETE", "configmaps/a?dryRun=x", {"dryRun": ["All"]}),
        Request("DELETE", "configmaps/a", "dryRun: [All]\n", _YAML),
        Request("DELETE", "configmaps/a", "dryRun: {[\n", _YAML, exact=False),
        Request("DELETE", "configmaps/a", "abc", {"Content-Type": "application/vnd.kubernetes.protobuf"}, exact=False),
        Request("DELETE", "configmaps?labelSelector=none", "[]"),
        Request("DELETE", "configmaps?labelSelector=none", {"gracePeriodSeconds": "x"}),
        Request("DELETE", "configmaps?labelSelector=none", {"propagationPolicy": "x"}),
        Request("GET", "configmaps/a"),
        Request("DELETE", "configmaps/a", "null"),
        Request("GET", "configmaps/a"),
    ],
    "bodies": _creations(
        "",
        "{",
        "[]",
        '"x"',
        '{"metadata":}',
        '{"metadata":{"name":"z"}} x',
        '{"metadata":NaN}',
        '{"kind":1}',
        '{"kind":"Pod","apiVersion":"v1","metadata":{"name":"z"}}',
        '{"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"z"}}',
        '{"kind":"ConfigMap","apiVersion":"a/b/c","metadata":{"name":"z"}}',
        '{"metadata":[]}',
        '{"metadata":"x"}',
        '{"metadata":{"name":1}}',
        '{"metadata":{"name":"z","namespace":"other"}}',
        '{"metadata":{"name":"z"},"data":{"a":1}}',
        '{"metadata":{"name":"z"},"data":{"a":"\\u0000"}}',
        "{}",
    )
    + _creations(b'{"metadata":{"name":"\xff"}}', _nested(20_000), '{"metadata":{"generation":1e400}}', exact=False),
    "warnings": _creations(
        *({"metadata": {"name": "w"}, field: 1} for field in ("a\nb", "a\x7fb", "a\u2028b", "aéb", 'a"b\\c')),
        {"metadata": {"name": "w"}, "x" * 3000: 1},
        {"metadata": {"name": "w"}, "x" * 3000: 1, "y" * 3000: 1},
        {"metadata": {"name": "w"}, **{f"f{number:03d}{'é' * 300}": 1 for number in range(40)}},
    ),
    "yaml": _creations(
        "metadata: {name: z}\ndata: {a: yes}\n",
        "metadata: {name: z}\ndata: {a: 2026-01-01}\n",
        "metadata: {name: &n z}\ndata: {a: *n}\n",
        "metadata: &m {name: z}\ndata: {<<: *m}\n",
        "metadata: {name: z}\n---\nmetadata: {name: zz}\n",
        "metadata: {name: z}\ndata: {a: !!binary aGk=}\n",
        "metadata: {name: z}\ndata: {1: x, true: y, 1.5: z}\n",
        headers=_YAML,
    )
    + _creations(
        "a: b: c",
        "x",
        "metadata: {name: z}\ndata: !!python/object/apply:os.system [ls]\n",
        "metadata: {name: z}\ndata: {a: .nan}\n",
        "metadata: &m {name: z, annotations: *m}",
        "[" * 20_000 + "]" * 20_000,
        b"metadata: {name: \xff}",
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(8)),
        headers=_YAML,
        exact=False,
    ),
    "json-patches": _patches(
        _JSON_PATCH,
        "{",
        "",
        "x",
        "{}",
        "null",
        "[]",
        [{"op": "copy", "from": "/data", "path": f"/data/z{number}"} for number in range(40)],
        [{"op": "copy", "from": "/data/x", "path": f"/data/z{number}"} for number in range(3)],
        [{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_001,
        [{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_000,
        [{"op": "remove", "path": "/metadata"}],
        [{"op": "remove", "path": "/metadata/name"}],
    )
    + _patches(
        _JSON_PATCH,
        [1],
        [None],
        [{"op": 1}],
        [{"op": "add"}],
        [{"op": "add", "path": 5}],
        [{"op": "remove", "path": ""}],
        [{"op": "replace", "path": "", "value": 1}],
        [{"op": "copy", "from": "", "path": "/data/x"}],
        [{"op": "move", "from": "/data", "path": "/data/x"}],
        [{"op": "add", "path": "/metadata/labels", "value": {"a": 1}}],
        [{"op": "test", "path": "/metadata/generation", "value": False}],
        [{"op": "add", "path": "/metadata/finalizers/-", "value": "x"}],
        [{"op": "add", "path": "/metadata", "value": None}],
        '[{"op":"add","path":"/a","value":' + _nested(20_000) + "}]",
        exact=False,
    )[1:],
    "merge-patches": _patches(
        _MERGE_PATCH,
        "{",
        "",
        "x",
        "[]",
        "1",
        '"x"',
        {"metadata": None},
        {"metadata": {"name": None}},
        {"metadata": {"name": "b"}},
        {"metadata": {"namespace": "x"}},
        {"metadata": {"labels": {"a": 1}}},
        {"data": {"a": 1}},
        {"kind": None},
    )
    + _patches(
        _MERGE_PATCH,
        "null",
        {"metadata": []},
        {"kind": "Pod"},
        {"apiVersion": "v2"},
        {"metadata": {"labels": 5}},
        _nested(20_000),
        exact=False,
    )[1:],
    "strategic-patches": _patches(
        _STRATEGIC_PATCH, "{", "", "x", "[]", "1", "null", {"metadata": None}, {"metadata": {"name": "b"}}
    )
    + _patches(
        _STRATEGIC_PATCH,
        {"metadata": []},
        {"data": []},
        {"data": {"a": 1}},
        {"metadata": {"labels": 5}},
        {"$retainKeys": 5},
        {"metadata": {"ownerReferences": [1]}},
        {"metadata": {"ownerReferences": [{"name": "x"}]}},
        {"metadata": {"finalizers": {"a": 1}}},
        {"metadata": {"$setElementOrder/finalizers": [{}]}},
        {"metadata": {"$setElementOrder/ownerReferences": [1, 2]}},
        {"metadata": {"ownerReferences": [{"uid": {"a": 1}}, {"uid": {"a": 1}}]}},
        exact=False,
    )[1:],
    "bindings": [
        Request("POST", "pods", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
        *(
            Request("POST", "pods/p/binding?dryRun=All", body)
            for body in (
                "[]",
                "{",
                {"metadata": 5},
                {"target": 5},
                {"target": {"kind": 5}},
                {"target": {"name": ["n"]}, "metadata": {"name": "p"}},
                {"metadata": {"name": 5}, "target": {"name": "n"}},
                {"metadata": {"name": "p", "labels": 5}, "target": {"name": "n"}},
                {"metadata": {"name": "p", "annotations": {"a": 1}}, "target": {"name": "n"}},
                {"kind": "Pod", "apiVersion": "v1"},
            )
        ),
    ],
    "reviews": [
        *(
            Request("POST", f"/apis/authorization.k8s.io/v1/{plural}", body)
            for plural in ("subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews")
            for body in ("[]", "{", {"kind": "Pod"}, {"spec": 5})
        ),
        Request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {"groups": "x", "user": "a"}}),
        Request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {"groups": [[]], "user": "a"}}),
        Request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": 5}}),
        Request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "é"}}),
    ],
    "updates": _made(
        Request("PUT", "configmaps/a", {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}),
        Request("PUT", "configmaps/a", {"metadata": {"name": "b"}}),
        Request("PUT", "configmaps/a", {}),
        Request("PUT", "configmaps/a", {"metadata": {"name": "a", "resourceVersion": 5}}),
        Request("PUT", "configmaps/a", "[]"),
    ),
}
