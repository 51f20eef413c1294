"""The pods of the programs: what the values add to them, and which rights they have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.rendered import PROGRAMS, environment, manager, objects, pod_spec


@pytest.mark.parametrize("name", PROGRAMS)
def test_pods_have_the_metadata_and_the_environment_of_the_values(name: str) -> None:
    workload = objects("everything")[PROGRAMS[name], name]
    metadata = workload["spec"]["template"]["metadata"]
    assert metadata["annotations"]["example.com/team"] == metadata["labels"]["team"] == "nodes"
    assert workload["spec"]["selector"]["matchLabels"].items() <= metadata["labels"].items()
    assert environment("everything", PROGRAMS[name], name)["HTTPS_PROXY"] == "http://proxy.example:3128"


@pytest.mark.parametrize("name", [name for name, kind in PROGRAMS.items() if kind == "Deployment"])
def test_a_program_without_a_node_has_no_right_on_one(name: str) -> None:
    spec = pod_spec("defaults", "Deployment", name)
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert [each["securityContext"] for each in spec["containers"]] == [
        {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    ]
    assert {"hostNetwork", "hostPID", "hostIPC"} & spec.keys() == set()


def test_an_image_is_pulled_as_the_values_say() -> None:
    found = {
        case: pod_spec(case, "Deployment", "koord-manager")["containers"][0] for case in ("defaults", "everything")
    }
    assert found["everything"]["imagePullPolicy"] == "Always"
    assert "imagePullPolicy" not in found["defaults"]


def test_affinity_adds_to_the_affinity_for_nodes() -> None:
    affinity = pod_spec("everything", "Deployment", "koord-manager")["affinity"]
    assert set(affinity) == {"nodeAffinity", "podAntiAffinity"}


def test_the_authority_of_api_servers_is_mounted_where_it_is_read() -> None:
    spec = pod_spec("everything", "Deployment", "koord-manager")
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "webhook-clients"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "webhook-clients"]
    assert Path(manager("everything").webhook_client_authority).parent == Path(mount["mountPath"])
    assert volume["configMap"] == {"name": "api-servers"}
