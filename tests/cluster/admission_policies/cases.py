"""Policies, bindings and requests, whose fate on the embedded API is compared with that on the real server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from koordinator.api.document import Document

NAMESPACE = "policed"
MARKER = "marker"
"""The name and the label of an object that a policy refuses which is made last: then all are in force."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: Any = None


@dataclass(frozen=True)
class Case:
    """``policy`` and ``binding`` are what their specs have beside what all have."""

    policy: Document
    requests: list[Request]
    binding: Document = field(default_factory=dict)
    before: list[Request] = field(default_factory=list)
    """Made before the policy is there; what comes of them is not looked at."""


def config_map(name: str, **data: str) -> Document:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"a": "b"}}, "data": data}


def make(name: str = "a", **data: str) -> Request:
    return Request("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps?dryRun=All", config_map(name, **data))


def _case(*validations: str | Document, requests: list[Request] | None = None, **policy: Any) -> Case:
    written = [{"expression": each} if isinstance(each, str) else each for each in validations]
    return Case({"validations": written, **policy}, requests or [make(), make(x="1"), make(x="2")])


def _config_maps(*operations: str, **more: Any) -> Document:
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
        "operations": list(operations),
        **more,
    }


_ONE = "has(object.data) && has(object.data.x) && object.data.x == '1'"
_KEPT = Request("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", config_map("kept", x="1"))
_CHANGED = f"/api/v1/namespaces/{NAMESPACE}/configmaps/kept?dryRun=All"
_LIMITS = [
    Request("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", config_map("limits", most="1")),
    Request("POST", "/api/v1/namespaces/default/configmaps", config_map("limits", most="0")),
]
_PARAMETERS: Document = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
CASES: dict[str, Case] = {
    "plain": _case(_ONE),
    "message": _case({"expression": _ONE, "message": "must be one "}),
    "message-expression": _case({"expression": _ONE, "messageExpression": "'is ' + object.data.x", "message": "m"}),
    "message-of-lines": _case({"expression": _ONE, "messageExpression": "'a\\nb'"}),
    "reason-forbidden": _case({"expression": _ONE, "reason": "Forbidden"}),
    "reason-large": _case({"expression": _ONE, "reason": "RequestEntityTooLarge"}),
    "several": _case(_ONE, "object.metadata.name == 'b'"),
    "error": _case("object.data.x == '1'"),
    "error-ignored": _case("object.data.x == '1'", failurePolicy="Ignore"),
    "variables": _case(
        "variables.isOne", variables=[
            {"name": "x", "expression": "has(object.data) && has(object.data.x) ? object.data.x : ''"},
            {"name": "isOne", "expression": "variables.x == '1'"},
        ],
    ),
    "variable-error": _case("variables.x == '1'", variables=[{"name": "x", "expression": "object.data.x"}]),
    "unused-variable-error": _case("true", variables=[{"name": "x", "expression": "object.data.x"}]),
    "conditions": _case("false", matchConditions=[{"name": "is-one", "expression": _ONE}]),
    "condition-error": _case("true", matchConditions=[{"name": "is-one", "expression": "object.data.x == '1'"}]),
    "condition-error-ignored": _case(
        "false", matchConditions=[{"name": "is-one", "expression": "object.data.x == '1'"}], failurePolicy="Ignore"
    ),
    "condition-error-and-false": _case(
        "false", matchConditions=[
            {"name": "error", "expression": "object.data.y == '1'"}, {"name": "false", "expression": "false"},
        ],
    ),
    "request": _case(
        "request.operation == 'CREATE' && request.resource.resource == 'configmaps' && request.kind.kind == 'ConfigMap'"
        " && request.name == 'a' && request.namespace == 'policed' && request.dryRun"
        " && request.userInfo.username == 'admin' && !has(request.subResource) && request.options.dryRun == ['All']"
    ),
    "namespace": _case("namespaceObject.metadata.name == 'policed' && namespaceObject.status.phase == 'Active'"),
    "authorizer": _case(
        "authorizer.group('').resource('configmaps').namespace('default').check('create').allowed()"
        " && authorizer.requestResource.check('delete').allowed() && authorizer.path('/healthz').check('get').allowed()"
    ),
    "audit": _case(_ONE, auditAnnotations=[{"key": "x", "valueExpression": "string(object.data.x)"}]),
    "types": _case(
        {"expression": "false", "messageExpression": "type(object) == map ? 'a map' : 'none'"},
    ),
    "old-object": Case(
        {"validations": [{"expression": "oldObject == null || oldObject.data.x == object.data.x", "message": "fixed"}],
         "matchConstraints": {"resourceRules": [_config_maps("UPDATE", "CREATE")]}},
        [
            make(),
            Request("PUT", _CHANGED, config_map("kept", x="2")),
            Request("PUT", _CHANGED, config_map("kept", x="1", y="2")),
        ],
        before=[_KEPT],
    ),
    "deletion": Case(
        {"validations": [{"expression": "object != null || oldObject.metadata.name != 'kept'"}],
         "matchConstraints": {"resourceRules": [_config_maps("DELETE", "CREATE")]}},
        [make(), Request("DELETE", _CHANGED)],
        before=[_KEPT],
    ),
    "resource-names": Case(
        {"validations": [{"expression": "false"}],
         "matchConstraints": {"resourceRules": [_config_maps("CREATE", resourceNames=["a"])]}},
        [make("a"), make("b")],
    ),
    "excluded": Case(
        {"validations": [{"expression": "false"}],
         "matchConstraints": {
             "resourceRules": [_config_maps("CREATE")],
             "excludeResourceRules": [_config_maps("CREATE", resourceNames=["b"])],
         }},
        [make("a"), make("b")],
    ),
    "warned": Case({"validations": [{"expression": _ONE}]}, [make(), make(x="1")], {"validationActions": ["Warn"]}),
    "audited": Case({"validations": [{"expression": _ONE}]}, [make()], {"validationActions": ["Audit"]}),
    "bound-elsewhere": Case(
        {"validations": [{"expression": "false"}]}, [make()],
        {"matchResources": {"objectSelector": {"matchLabels": {"a": "c"}}}},
    ),
    "parameter": Case(
        {**_PARAMETERS, "validations": [{"expression": "object.data.size() <= int(params.data.most)"}]},
        [make(x="1"), make(x="1", y="2")],
        {"paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}}, _LIMITS,
    ),
    "parameter-elsewhere": Case(
        {**_PARAMETERS, "validations": [{"expression": "object.data.size() <= int(params.data.most)"}]},
        [make(x="1")],
        {"paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}}, _LIMITS,
    ),
    "parameters-by-labels": Case(
        {**_PARAMETERS, "validations": [{"expression": "!has(params.data.most) || params.data.most != '1'"}]},
        [make(x="1")],
        {"paramRef": {"selector": {"matchLabels": {"a": "b"}}, "parameterNotFoundAction": "Allow"}}, _LIMITS,
    ),
    "no-parameter": Case(
        {**_PARAMETERS, "validations": [{"expression": "params != null"}]},
        [make(x="1")], {"paramRef": {"name": "none", "parameterNotFoundAction": "Deny"}},
    ),
    "unbound-parameter": Case({**_PARAMETERS, "validations": [{"expression": "params != null"}]}, [make(x="1")]),
    "expensive": _case("[1,2,3,4,5,6,7,8,9,0].all(a, " * 6 + "true" + ")" * 6, requests=[make()]),
    "expensive-together": _case(
        *["[1,2,3,4,5,6,7,8,9,0].all(a, " * 5 + f"a < {20 + i}" + ")" * 5 for i in range(40)], requests=[make()]
    ),
}  # fmt: skip


def _policy(**spec: Any) -> Document:
    rules = {"resourceRules": [_config_maps("CREATE")]}
    return {"matchConstraints": rules, "validations": [{"expression": "true"}], **spec}


def _validation(expression: str, **more: Any) -> Document:
    return _policy(validations=[{"expression": expression, **more}])


POLICIES: dict[str, Document] = {
    "valid": _policy(),
    "no-constraints": {"validations": [{"expression": "true"}]},
    "no-rules": _policy(matchConstraints={}),
    "no-validations": _policy(validations=[]),
    "wrong-failure-policy": _policy(failurePolicy="Perhaps"),
    "no-bool": _validation("1"),
    "no-such-variable": _validation("params.x == 1"),
    "no-composition": _validation("variables.x == 1"),
    "undefined-field": _validation("request.nothing == 1"),
    "syntax": _validation("object.x =="),
    "empty": _validation(" "),
    "blank-message": _validation("true", message=" "),
    "lines": _validation("true", message="a\nb"),
    "wrong-reason": _validation("true", reason="Odd"),
    "message-no-text": _validation("true", messageExpression="1"),
    "message-authorizer": _validation("true", messageExpression="authorizer.path('/x').check('get').reason()"),
    "blank-message-expression": _validation("true", messageExpression=" "),
    "variable-order": _policy(
        variables=[{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}],
        validations=[{"expression": "variables.a == 1"}],
    ),
    "variable-types": _policy(
        variables=[{"name": "a", "expression": "1"}], validations=[{"expression": "variables.a == 'x'"}]
    ),
    "variable-names": _policy(variables=[{"name": "a-b", "expression": "1"}, {"name": "for", "expression": ""}]),
    "condition-names": _policy(
        matchConditions=[
            {"name": "a", "expression": "true"}, {"name": "a", "expression": "1"}, {"name": "/", "expression": ""},
        ]
    ),
    "condition-params": _policy(matchConditions=[{"name": "a", "expression": "params.x"}]),
    "parameter-kind": _policy(paramKind={"apiVersion": "a/b/c", "kind": "X"}),
    "parameter-kind-empty": _policy(paramKind={}),
    "annotation": _policy(auditAnnotations=[{"key": "a", "valueExpression": "1"}, {"key": "a", "valueExpression": ""}]),
    "annotation-or-null": _policy(auditAnnotations=[{"key": "a", "valueExpression": "null"}]),
    "resource-names": _policy(
        matchConstraints={"resourceRules": [_config_maps("CREATE", resourceNames=["a", "a", "b/c"])]}
    ),
}  # fmt: skip
BINDINGS: dict[str, Document] = {
    "valid": {"policyName": "x", "validationActions": ["Deny"]},
    "no-name": {"validationActions": ["Deny"]},
    "no-actions": {"policyName": "x"},
    "actions": {"policyName": "x", "validationActions": ["Deny", "Warn", "Warn", "Odd"]},
    "parameter-nothing": {"policyName": "x", "validationActions": ["Deny"], "paramRef": {}},
    "parameter-both": {
        "policyName": "x",
        "validationActions": ["Deny"],
        "paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Odd"},
    },
}
