"""Secrets go from wherever people put them, and what a reader needs stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordinator.cli.support_bundle.redaction import REMOVED, Redactor

SECRET = "hunter2-Sw0rdfish"
KEY = f"-----BEGIN RSA PRIVATE KEY-----\nMIIE{SECRET}\n-----END RSA PRIVATE KEY-----"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
DENSE = "Zm9vYmFyMTIzNDU2Nzg5MGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6"


@pytest.mark.parametrize(
    "line",
    [
        f"Authorization: Bearer {SECRET}",
        f'curl -H "authorization: Basic {SECRET}=="',
        f"password={SECRET}",
        f"--db-password={SECRET} --v=4",
        f'{{"msg": "login", "password": "{SECRET}", "user": "a"}}',
        f'{{\\"apiKey\\": \\"{SECRET}\\"}}',
        f"client_secret: '{SECRET}'",
        f'token: "{SECRET} and more"',
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"GET /x?access_token={SECRET}&b=1",
        f"connecting to postgres://app:{SECRET}@db:5432/app",
        f"connecting to https://{SECRET}@host/path",
        f"Cookie: session={SECRET}; other={SECRET}",
        f"secret => {SECRET}",
        f"read {KEY} from a file",
        f"I1201 {KEY.splitlines()[1]}\nI1201 -----END RSA PRIVATE KEY-----\nI1201 goes on",
        KEY.replace("\n", "\\n"),
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
        f"start --password {SECRET} now",
        f'args: ["--token", "{SECRET}"]',
        f"posting to https://hooks.slack.com/services/T000/B000/{SECRET} failed",
        f"password: |\n  {SECRET}\nport: 1",
        f"- name: DB_PASSWORD\n  value: {SECRET}",
        f'[{{"name":"DB_PASSWORD","value":"{SECRET}"',
        f'"passwords": ["{SECRET}"]',
        f'"password": {{"value": "{SECRET}"}}',
    ],
)
def test_a_line_of_a_log_loses_its_secret(line: str) -> None:
    cleaned = Redactor().text(line)
    assert SECRET not in cleaned
    assert REMOVED in cleaned


@pytest.mark.parametrize(
    "secret",
    [
        TOKEN,
        DENSE,
        f"{DENSE[:30]}/{DENSE[30:]}+9==",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "glpat-abcdefghij0123456789",
        "xoxb-123456789012-abcdefghijkl",
        "abcdef.0123456789abcdef",
        "hvs.CAESIJabcdefghijklmnop",
    ],
)
def test_what_looks_like_a_key_goes_wherever_it_stands(secret: str) -> None:
    assert Redactor().text(f"it is {secret}, so") == f"it is {REMOVED}, so"


@pytest.mark.parametrize(
    "line",
    [
        "I1201 04:48:17.283897    7012 program.py:292] in sync: 4 nodes, 0 pods, 0 assumed_pods",
        'rest_client_requests_total{code="200",method="GET"} 3.0',
        "apiserver_token_total 5",
        "image koordinator@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "pod default/web-7f9c5b6d4-x2x9z, uid 587773c4-dfc3-4048-b12e-bc7a8d71904e",
        "--authentication-token-webhook-cache-ttl=10s --authorization-mode=Node --tls-private-key-file=/etc/tls.key",
        'secrets "koordinator-webhook-certs" is forbidden: User "alice" cannot get resource "secrets"',
        "automountServiceAccountToken: false",
        "secretName: koordinator-webhook-certs",
        "/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/cri-containerd-0123456789abcdef.scope/cpu.max",
        "0/4 nodes are available: 4 Insufficient cpu.",
    ],
)
def test_what_a_reader_needs_stays(line: str) -> None:
    redactor = Redactor()
    assert redactor.text(line) == line
    assert not +redactor.counts


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "main", "image": "example:1", **fields}


def annotated(value: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {"example.com/x": value}}}


PLANTED: dict[str, dict[str, Any]] = {
    "a Secret": {"kind": "Secret", "data": {"a": SECRET}, "stringData": {"b": SECRET}},
    "last applied": {
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": f'{{"a": "{SECRET}"}}'}}
    },
    "an annotation by its name": {"metadata": {"annotations": {"example.com/api-token": SECRET}}},
    "an annotation by its value": {"metadata": {"annotations": {"example.com/x": f"https://a:{SECRET}@b"}}},
    "an annotation of JSON": {"metadata": {"annotations": {"example.com/x": json.dumps({"a": {"password": SECRET}})}}},
    "managed fields": {"metadata": {"managedFields": [{"fieldsV1": {f"k:{SECRET}": {}}}]}},
    "the environment": {"spec": {"containers": [container(env=[{"name": "A", "value": SECRET}])]}},
    "arguments of others": {"spec": {"containers": [container(args=["--x", SECRET], command=[SECRET])]}},
    "a hook of others": {"spec": {"initContainers": [container(lifecycle={"preStop": {"command": [SECRET]}})]}},
    "a template": {
        "spec": {"template": {"spec": {"ephemeralContainers": [container(args=[SECRET])]}}}
    },
    "a probe": {"spec": {"containers": [container(readinessProbe={"httpGet": {"httpHeaders": [{"value": SECRET}]}})]}},
    "a ConfigMap": {"kind": "ConfigMap", "data": {"a.yaml": f"database:\n  password: |\n    {SECRET}\n    more\n"}},
    "a ConfigMap by its key": {"kind": "ConfigMap", "data": {"token": SECRET}},
    "a ConfigMap of two documents": {"kind": "ConfigMap", "data": {"a": f"a: 1\n---\nusers: [{{token: {SECRET}}}]\n"}},
    "a comment of a ConfigMap": {"kind": "ConfigMap", "data": {"a": f"a: 1  # password={SECRET}\n"}},
    "binary data": {"kind": "ConfigMap", "binaryData": {"a": SECRET}},
    "a kubeconfig": {"users": [{"user": {"token": SECRET, "client-key-data": SECRET, "password": SECRET}}]},
    "what is in a named secret": annotated(json.dumps({"password": {"value": SECRET}})),
    "a name beside its value": annotated(json.dumps([{"name": "DB_PASSWORD", "value": SECRET}])),
    "a key that is repeated": annotated(f'{{"password": "{SECRET}", "password": ""}}'),
    "a key that is repeated and escaped": annotated(f'{{"pass\\u0077ord": "{SECRET}", "password": ""}}'),
    "a key of JSON": annotated(json.dumps({f"Authorization: Bearer {SECRET}": 1})),
    "an annotation of YAML": annotated(f"user: a\npassword: |\n  {SECRET}\n"),
    "an annotation of YAML in the next line": annotated(f"user: a\npassword:\n  {SECRET}\n"),
    "an annotation that is too deep": annotated('{"password": ' + "[" * 600 + f'"{SECRET}"' + "]" * 600 + "}"),
    "arguments by another name": {"arguments": ["--token", SECRET]},
    "a ConfigMap with a name beside its value": {
        "kind": "ConfigMap", "data": {"a.yaml": f"list:\n- name: DB_PASSWORD\n  value: {SECRET}\n"}
    },
    "a ConfigMap with a number for a key": {"kind": "ConfigMap", "data": {"a.yaml": f"1: {{password: {SECRET}}}\n"}},
    "a ConfigMap with aliases": {
        "kind": "ConfigMap", "data": {"a.yaml": f"a: &a\n  password:\n    {SECRET}\nb: *a\n"}
    },
    "a condition": {"status": {"conditions": [{"message": f"cannot pull: Authorization: Bearer {SECRET}"}]}},
}  # fmt: skip


@pytest.mark.parametrize("document", PLANTED.values(), ids=PLANTED)
def test_an_object_loses_its_secret(document: dict[str, Any]) -> None:
    assert SECRET not in json.dumps(Redactor().document(document))


@pytest.mark.parametrize("name", ["password", "token"])
def test_a_secret_may_be_a_number(name: str) -> None:
    assert "12345678901" not in json.dumps(Redactor().document(annotated(json.dumps({name: 12345678901}))))
    assert "12345678901" not in Redactor().text(f"{name}=12345678901")


@pytest.mark.parametrize("text", ["[" * 100_000, "a: " + "[" * 100_000, "{" * 100_000])
def test_what_is_nested_too_deep_to_be_looked_at_is_removed(text: str) -> None:
    cleaned = Redactor().document({"kind": "ConfigMap", "metadata": {"a": text}, "data": {"b": text}})
    assert cleaned["data"]["b"] == REMOVED


def test_yaml_whose_aliases_multiply_is_not_read() -> None:
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
    redactor = Redactor()
    cleaned = redactor.document({"kind": "ConfigMap", "data": {"a": f"a0: &a0 [x]\n{levels}"}})
    assert cleaned["data"]["a"] == REMOVED
    assert redactor.counts == {"a text that cannot be looked through: nested too deep, or with aliases or tags": 1}


def test_of_two_secrets_that_begin_alike_nothing_stays() -> None:
    redactor = Redactor()
    redactor.document({"password": SECRET, "items": [{"token": f"{SECRET}-and-more"}]})
    assert redactor.text(f"with {SECRET}-and-more") == f"with {REMOVED}"


@pytest.mark.parametrize(
    "document",
    [
        {"volumes": [{"secret": {"secretName": "a", "items": [{"key": "b", "path": "c"}], "optional": True}}]},
        {"valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
        {"imagePullSecrets": [{"name": "a"}]},
        {"tolerations": [{"key": "a", "operator": "Equal", "value": "b"}]},
    ],
)
def test_where_a_secret_is_stays(document: dict[str, Any]) -> None:
    assert Redactor().document(document) == document


@pytest.mark.parametrize(
    "arguments",
    [
        [f"--token={SECRET}"],
        ["--token", SECRET],
        ["--kube-api-token", SECRET, "--v=4"],
        [f"https://a:{SECRET}@b"],
    ],
)
def test_arguments_of_our_own_programs_stay_but_for_secrets(arguments: list[str]) -> None:
    (cleaned,) = Redactor().document({"containers": [container(args=["--v=4", *arguments])]}, ours=True)["containers"]
    assert SECRET not in json.dumps(cleaned)
    assert cleaned["args"][0] == "--v=4"
    assert len(cleaned["args"]) == 1 + len(arguments)


def test_what_was_removed_from_an_object_is_removed_from_logs_that_come_later() -> None:
    redactor = Redactor()
    redactor.document({"containers": [container(env=[{"name": "DB_PASSWORD", "value": SECRET}])]}, ours=True)
    assert redactor.text(f"logging in with {SECRET} now") == f"logging in with {REMOVED} now"


def test_an_object_without_secrets_stays_as_it_is() -> None:
    document = {
        "kind": "Reservation",
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"example.com/x": '{"a":   1}'}},
        "spec": {"template": {"spec": {"containers": [container(resources={"requests": {"cpu": "1"}})]}}, "ttl": "1h"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "count": 3, "none": None},
    }
    redactor = Redactor()
    assert redactor.document(document) == document
    assert not +redactor.counts


def test_the_home_of_whoever_makes_it_is_not_named() -> None:
    assert Redactor(Path("/home/alice")).text("/home/alice/.kube/config") == "~/.kube/config"
