"""koord page as a Deployment: what the chart and the manifests have of it, and what its own account may do."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from koordinator.api.kinds import NAMESPACES
from koordinator.api.manifests.installation import Installation, manifest_files
from koordinator.cli.main import make_parser
from koordinator.cli.page.feed import READS
from tests.chart.rendered import ELSEWHERE, arguments, environment, objects, pod_spec, ports
from tests.chart.renderings import Document
from tests.chart.test_chart import comparable
from tests.chart.test_network import network_policies
from tests.yaml_documents import yaml_documents

PAGE = "koord-page"
Granted = set[tuple[str, str, str]]
"""Verb, group, resource."""


def page_objects() -> list[Document]:
    files = manifest_files(Installation(), ["dashboard"])
    return [each for text in files.values() for each in yaml_documents(text)]


def options(case: str) -> argparse.Namespace:
    return make_parser(["page"]).parse_args(["page", *arguments(case, "Deployment", PAGE)])


def granted(role: str) -> Granted:
    (found,) = [each for each in page_objects() if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", role)]
    return {
        (verb, group, resource)
        for rule in found["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def needed(*verbs: str) -> Granted:
    """For the tables."""
    return {(verb, kind.group, kind.plural) for kinds in READS.values() for kind in kinds for verb in verbs}


def test_nothing_of_it_is_installed_unless_it_is_wanted() -> None:
    assert [name for _, name in objects("defaults") if name == PAGE] == []


def test_the_chart_installs_what_the_manifests_have() -> None:
    expected = {(each["kind"], each["metadata"]["name"]): comparable(each) for each in page_objects()}
    found = {key: comparable(each) for key, each in objects("page").items() if key not in objects("defaults")}
    assert found == expected


def test_its_account_may_read_what_the_tables_are_made_of_and_nothing_else() -> None:
    namespaces = {(verb, NAMESPACES.group, NAMESPACES.plural) for verb in ("list", "watch")}
    assert granted(PAGE) == needed("list", "watch") | namespaces


def test_a_viewer_may_see_every_table_and_explain_what_is_in_it() -> None:
    text = manifest_files(Installation(), ["rbac"])["rbac/koord-explain.yaml"]
    explained = {
        (verb, group, resource)
        for role in yaml_documents(text)
        if role["metadata"]["name"] in ("koord-explain", "koord-explain-view") and role["kind"] == "ClusterRole"
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if verb != "watch"
    }
    assert granted("koord-viewer") >= needed("list") | explained


@pytest.mark.parametrize("case", ["page", "everything"])
def test_its_server_understands_its_arguments(case: str) -> None:
    found = options(case)
    assert (found.sign_in, found.bind_address, found.page_port) == (True, "::", ports(case, PAGE)["https"])
    assert (found.lease, found.manager_lease) == (
        f"{ELSEWHERE}/koord-scheduler",
        f"{ELSEWHERE}/koordinator-manager",
    )
    assert found.port == ports(case, "koord-scheduler")["metrics"]
    probes = [pod_spec(case, "Deployment", PAGE)["containers"][0][each] for each in ("readinessProbe", "livenessProbe")]
    assert [(each["httpGet"]["port"], each["httpGet"]["scheme"]) for each in probes] == [("https", "HTTPS")] * 2


def test_it_is_served_with_the_certificate_of_a_secret() -> None:
    spec, found = pod_spec("everything", "Deployment", PAGE), options("everything")
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "tls"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "tls"]
    assert volume["secret"] == {"secretName": "page-tls"}
    assert (found.tls_cert_file, found.tls_private_key_file) == tuple(
        Path(mount["mountPath"], name) for name in ("tls.crt", "tls.key")
    )
    assert options("page").tls_cert_file is None


def test_its_pods_have_no_right_on_a_node_and_are_as_the_values_say() -> None:
    spec = pod_spec("everything", "Deployment", PAGE)
    assert spec["securityContext"] == pod_spec("defaults", "Deployment", "koord-scheduler")["securityContext"]
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["tolerations"] == [{"key": "system", "operator": "Exists"}]
    assert environment("everything", "Deployment", PAGE)["HTTPS_PROXY"] == "http://proxy.example:3128"


def test_service_and_policy_lead_to_its_port() -> None:
    found = objects("everything")
    labels = found["Deployment", PAGE]["spec"]["template"]["metadata"]["labels"]
    service, policy = found["Service", PAGE]["spec"], network_policies()[PAGE]
    assert service["selector"].items() <= labels.items()
    assert [each["targetPort"] for each in service["ports"]] == list(ports("everything", PAGE))
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    (rule,) = policy["ingress"]
    assert rule["ports"] == [{"port": ports("everything", PAGE)["https"]}]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}]
    assert [[each["port"] for each in allowed["ports"]] for allowed in policy["egress"]] == [[53, 53], [8443], [9090]]
