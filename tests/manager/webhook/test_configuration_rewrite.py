"""What webhook configurations become, decided without an API server."""

from __future__ import annotations

import base64
import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from koordinator.api.admission_registration import WebhookConfiguration
from koordinator.api.codec import convert
from koordinator.base.errors import ConfigurationError
from koordinator.manager.webhook.configuration_rewrite import Rewrite, Target, rewrite, with_defaults
from tests.manager.webhook.installed import entry, mutating

TARGET = Target("ns", "hooks", "", 9876, frozenset({"/mutate-pod", "/mutate-node-status"}), b"authority")
BUNDLE = base64.b64encode(b"authority").decode()
LOCAL = replace(TARGET, host="127.0.0.1", port=1234)


def configuration(webhooks: list[dict[str, Any]], annotations: dict[str, str] | None = None) -> WebhookConfiguration:
    metadata = {"name": "c", "resourceVersion": "7", "annotations": annotations or {}}
    return convert({"metadata": metadata, "webhooks": webhooks}, WebhookConfiguration)


def pod_entry(**more: Any) -> dict[str, Any]:
    return entry("mpod", "/mutate-pod", "pods", ["CREATE"], **more)


def patched(current: WebhookConfiguration, decision: Rewrite) -> WebhookConfiguration:
    assert decision.patch is not None
    annotations = {**current.metadata.annotations, **decision.patch["metadata"].get("annotations", {})}
    return configuration(decision.patch.get("webhooks", current.webhooks), annotations)


def test_the_entries_that_were_installed_become_the_template() -> None:
    installed = [pod_entry(), entry("mnode", "/mutate-other", "nodes", ["CREATE"])]
    patch = rewrite(configuration(installed), TARGET).patch
    assert patch is not None
    assert json.loads(patch["metadata"]["annotations"]["template"]) == installed
    assert patch["metadata"]["resourceVersion"] == "7"


def test_an_entry_is_pointed_at_the_service_with_the_authority_to_trust() -> None:
    patch = rewrite(configuration([pod_entry()]), TARGET).patch
    assert patch is not None
    service = {"namespace": "ns", "name": "hooks", "path": "/mutate-pod"}
    assert patch["webhooks"] == [{**pod_entry(), "clientConfig": {"service": service, "caBundle": BUNDLE}}]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "https://127.0.0.1:1234/mutate-pod"),
        ("hooks.example", "https://hooks.example:1234/mutate-pod"),
        ("::1", "https://[::1]:1234/mutate-pod"),
    ],
)
def test_a_host_takes_the_place_of_the_service(host: str, url: str) -> None:
    patch = rewrite(configuration([pod_entry()]), replace(LOCAL, host=host)).patch
    assert patch is not None
    assert patch["webhooks"][0]["clientConfig"] == {"url": url, "caBundle": BUNDLE}


def test_an_entry_with_a_url_keeps_it() -> None:
    given = {**pod_entry(), "clientConfig": {"url": "https://elsewhere:1/mutate-pod?x=1"}}
    patch = rewrite(configuration([given]), LOCAL).patch
    assert patch is not None
    expected = {"url": "https://elsewhere:1/mutate-pod?x=1", "caBundle": BUNDLE}
    assert patch["webhooks"][0]["clientConfig"] == expected


def pem(name: str) -> bytes:
    return f"-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n".encode()


@pytest.mark.parametrize(
    ("trusted", "keep", "expected"),
    [
        (pem("old"), True, pem("new") + pem("old")),
        (pem("old"), False, pem("new")),
        (pem("new"), True, pem("new")),
        (pem("new") + pem("old"), True, pem("new") + pem("old")),
        (pem("new") + pem("old"), False, pem("new")),
        (pem("old").strip(), True, pem("new") + pem("old").strip()),
        (b"\n", True, pem("new")),
        (b"".join(pem(str(number)) for number in range(9)), True, pem("new") + pem("0") + pem("1") + pem("2")),
    ],
)
def test_during_a_change_over_the_old_authority_is_trusted_as_well(trusted: bytes, keep: bool, expected: bytes) -> None:
    given = pod_entry()
    given["clientConfig"]["caBundle"] = base64.b64encode(trusted).decode()
    target = replace(TARGET, authority=pem("new"), keep_trusted=keep)
    after = patched(configuration([given]), rewrite(configuration([given]), target))
    assert base64.b64decode(after.webhooks[0]["clientConfig"]["caBundle"]) == expected


@pytest.mark.parametrize("bundle", [None, 7, "%", ""])
def test_a_bundle_that_is_none_is_replaced(bundle: Any) -> None:
    given = pod_entry()
    given["clientConfig"]["caBundle"] = bundle
    patch = rewrite(configuration([given]), replace(TARGET, keep_trusted=True)).patch
    assert patch is not None
    assert patch["webhooks"][0]["clientConfig"]["caBundle"] == BUNDLE


def test_what_nothing_responds_to_is_left_out_and_comes_back() -> None:
    installed = configuration(mutating()["webhooks"])
    decision = rewrite(installed, TARGET)
    quota = "/mutate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"
    assert decision.left_out == [quota, "/mutate-reservation"]
    after = patched(installed, decision)
    names = [each["name"].partition(".")[0] for each in after.webhooks]
    assert names == ["mnode-status", "mpod-create", "mpod-update"]
    again = rewrite(after, replace(TARGET, paths={*TARGET.paths, quota}))
    assert again.patch is not None
    assert again.patch["webhooks"][0]["clientConfig"]["service"]["path"] == quota


def test_without_any_handler_nothing_is_installed() -> None:
    patch = rewrite(configuration([pod_entry()]), replace(TARGET, paths=())).patch
    assert patch is not None
    assert patch["webhooks"] == []


@pytest.mark.parametrize("target", [TARGET, LOCAL, replace(TARGET, paths=())])
def test_what_is_in_line_is_not_written(target: Target) -> None:
    installed = configuration(mutating()["webhooks"])
    after = patched(installed, rewrite(installed, target))
    stored = configuration([with_defaults(each) for each in after.webhooks], dict(after.metadata.annotations))
    assert rewrite(stored, target).patch is None


@pytest.mark.parametrize(
    "change",
    [
        {"authority": b"another"},
        {"host": "other.example"},
        {"namespace": "other"},
        {"service": "other"},
        {"paths": frozenset({"/mutate-pod"})},
    ],
)
def test_what_is_out_of_line_is(change: dict[str, Any]) -> None:
    installed = configuration(mutating()["webhooks"])
    after = patched(installed, rewrite(installed, TARGET))
    decision = rewrite(after, replace(TARGET, **change))
    assert decision.patch is not None
    assert "annotations" not in decision.patch["metadata"]


def meddled(**change: Any) -> WebhookConfiguration:
    """A configuration in line, whose only entry somebody has changed."""
    installed = configuration([pod_entry(), entry("mpod2", "/mutate-pod", "pods", ["UPDATE"])])
    after = patched(installed, rewrite(installed, TARGET))
    webhooks = deepcopy(after.webhooks)
    webhooks[0] |= change
    return configuration(webhooks, dict(after.metadata.annotations))


@pytest.mark.parametrize(
    "change",
    [
        {"failurePolicy": "Fail"},
        {"timeoutSeconds": 3},
        {"namespaceSelector": {"matchLabels": {"a": "b"}}},
        {"objectSelector": {"matchLabels": {"a": "b"}}},
        {"matchConditions": [{"name": "n", "expression": "true"}]},
        {"reinvocationPolicy": "IfNeeded"},
    ],
)
def test_what_administrators_change_in_an_entry_stays(change: dict[str, Any]) -> None:
    current = meddled(**change)
    assert rewrite(current, TARGET).patch is None
    moved = rewrite(current, replace(TARGET, service="other")).patch
    assert moved is not None
    assert moved["webhooks"][0].items() >= change.items()
    assert moved["webhooks"][0]["clientConfig"]["service"]["name"] == "other"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rules": []}, "rules"),
        ({"clientConfig": {"url": "https://elsewhere/mutate-pod", "caBundle": BUNDLE}}, "clientConfig.service"),
        (
            {"clientConfig": {"service": {"namespace": "ns", "name": "hooks", "path": "/mutate-pod"}}},
            "clientConfig.caBundle",
        ),
    ],
)
def test_what_the_webhooks_need_is_changed_back_and_named(change: dict[str, Any], field: str) -> None:
    in_line = meddled()
    decision = rewrite(meddled(**change), TARGET)
    assert decision.patch is not None
    assert decision.patch["webhooks"] == in_line.webhooks
    assert f"mpod.koordinator.sh: {field}" in decision.reverted


def test_an_entry_that_somebody_has_added_is_removed_and_named() -> None:
    current = meddled()
    added = configuration(
        [*current.webhooks, entry("other", "/mutate-pod", "pods", ["CREATE"])], dict(current.metadata.annotations)
    )
    decision = rewrite(added, TARGET)
    assert decision.patch is not None
    assert decision.patch["webhooks"] == current.webhooks
    assert decision.reverted == ["other.koordinator.sh: an entry that is not in the template"]


def test_a_changed_template_overwrites_the_entries_once() -> None:
    current = meddled(timeoutSeconds=3)
    template = json.loads(current.metadata.annotations["template"])
    template[0]["timeoutSeconds"] = 7
    annotations = {**current.metadata.annotations, "template": json.dumps(template)}
    decision = rewrite(configuration(current.webhooks, annotations), TARGET)
    after = patched(configuration(current.webhooks, annotations), decision)
    assert after.webhooks[0]["timeoutSeconds"] == 7
    assert decision.reverted == []
    assert rewrite(after, TARGET).patch is None


def test_an_authority_that_changes_over_is_nobody_s_change() -> None:
    decision = rewrite(meddled(), replace(TARGET, authority=b"another", keep_trusted=True))
    assert decision.patch is not None
    assert decision.reverted == []


def test_an_emptied_template_takes_the_new_entries() -> None:
    upgraded = configuration([pod_entry(timeoutSeconds=30)], {"template": ""})
    patch = rewrite(upgraded, TARGET).patch
    assert patch is not None
    assert json.loads(patch["metadata"]["annotations"]["template"])[0]["timeoutSeconds"] == 30


def test_fields_that_are_not_known_here_are_given_back() -> None:
    patch = rewrite(configuration([pod_entry(matchConditions=[{"name": "n", "expression": "a && b"}], new=1)]), TARGET)
    assert patch.patch is not None
    assert patch.patch["webhooks"][0]["matchConditions"] == [{"name": "n", "expression": "a && b"}]
    assert patch.patch["webhooks"][0]["new"] == 1


@pytest.mark.parametrize(
    "client",
    [None, {}, {"service": {"name": "s"}}, {"service": {}}, {"service": {"path": 1}}, {"url": 1}],
)
def test_an_entry_that_leads_nowhere_is_named(client: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"c: webhooks\[1\] of the template: clientConfig"):
        rewrite(configuration([pod_entry(), {**pod_entry(), "clientConfig": client}]), TARGET)


@pytest.mark.parametrize("text", ["{", "{}", "[1]", "null "])
def test_a_template_that_is_none_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="c: annotation template"):
        rewrite(configuration([pod_entry()], {"template": text}), TARGET)


@pytest.mark.parametrize("rules", [1, "pods", {}, [None], ["pods"]])
def test_rules_that_are_none_are_named(rules: Any) -> None:
    template = json.dumps([pod_entry(), {**pod_entry(), "rules": rules}])
    with pytest.raises(ConfigurationError, match=r"c: webhooks\[1\] of the template: rules"):
        rewrite(configuration([pod_entry()], {"template": template}), TARGET)


def test_an_entry_may_have_no_rules() -> None:
    template = json.dumps([{**pod_entry(), "rules": None}])
    assert rewrite(configuration([pod_entry()], {"template": template}), TARGET).patch is not None
