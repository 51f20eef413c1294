"""What the Helm chart installs, from the recorded renderings: what `koord manifests` prints, but for what is said here,
and what its values are for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import koordinator
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.manifests.installation import Installation, manifest_files
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.loading import load_configuration as load_descheduler_configuration
from koordinator.descheduler.main import BUILT_IN as BUILT_IN_DESCHEDULER_PLUGINS
from koordinator.device_daemon.options import parse_options as device_daemon_options
from koordinator.koordlet.command_line import parse_options as koordlet_options
from koordinator.koordlet.options import Options as KoordletOptions
from koordinator.manager.options import CONTROLLERS
from koordinator.scheduler.configuration import SchedulerConfiguration, load_configuration, not_built
from koordinator.scheduler.options import parse_options as scheduler_options
from koordinator.scheduler.plugins.table import BUILT_IN
from tests.chart.rendered import (
    ELSEWHERE,
    PROGRAMS,
    arguments,
    configuration_text,
    environment,
    manager,
    objects,
    pod_spec,
    ports,
)
from tests.chart.renderings import CHART, Document, fingerprint, recorded, recorded_fingerprint
from tests.yaml_documents import yaml_documents


def webhook_entries(case: str) -> dict[str, Document]:
    return {
        entry["name"].removesuffix(".koordinator.sh"): entry
        for kind in ("Mutating", "Validating")
        for entry in json.loads(
            objects(case)[f"{kind}WebhookConfiguration", f"koordinator-{kind.lower()}-webhook-configuration"][
                "metadata"
            ]["annotations"]["template"]
        )
    }


def test_the_renderings_are_those_of_the_chart() -> None:
    assert recorded_fingerprint() == fingerprint(), "record them: python -m tests.chart.record HELM"


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (koordinator.__version__, koordinator.__version__)


def comparable(document: Document) -> Document:
    """The object without what is intended to differ: annotations and labels of Helm's, the seconds of webhooks, and
    how the texts of ConfigMaps are written."""
    found: Document = json.loads(json.dumps(document))
    annotations = found["metadata"].get("annotations", {})
    annotations.pop("helm.sh/resource-policy", None)
    if "template" in annotations:
        entries = json.loads(annotations["template"])
        annotations["template"] = [{k: v for k, v in each.items() if k != "timeoutSeconds"} for each in entries]
    if not annotations:
        found["metadata"].pop("annotations", None)
    for name in ("instance", "version", "managed-by"):
        found["metadata"].get("labels", {}).pop(f"app.kubernetes.io/{name}", None)
    if found["kind"] == "Deployment":
        found["spec"]["template"]["metadata"].pop("annotations", None)
    if found["kind"] == "ConfigMap":
        found["data"] = {key: yaml.safe_load(text) for key, text in found["data"].items()}
    if found["kind"] == "CustomResourceDefinition":
        found.pop("spec", None)
    return found


def test_it_installs_what_the_manifests_do() -> None:
    printed = [each for text in manifest_files(Installation()).values() for each in yaml_documents(text)]
    expected = {(each["kind"], each["metadata"]["name"]): comparable(each) for each in printed}
    rendered = {key: comparable(each) for key, each in objects("defaults").items()}
    del rendered["Pod", "koordinator-test-webhooks"]
    assert rendered == expected


def test_webhooks_have_as_long_as_the_api_server_gives_them_by_default() -> None:
    assert {entry["timeoutSeconds"] for entry in webhook_entries("defaults").values()} == {10}


def test_a_changed_configuration_replaces_the_pods() -> None:
    for name in ("koord-scheduler", "koord-descheduler"):
        sums = {
            objects(case)["Deployment", name]["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
            for case in ("defaults", "everything")
        }
        assert len(sums) == 2


def test_everything_is_in_the_namespace_of_the_values() -> None:
    elsewhere = {each["metadata"].get("namespace", ELSEWHERE) for each in recorded("everything")}
    # What lets programs read the authority of clients is where that is.
    assert elsewhere == {ELSEWHERE, "kube-system"}
    assert "koordinator-system" not in json.dumps(recorded("everything"))


def scheduler_configuration(case: str, folder: Path) -> SchedulerConfiguration:
    file = folder / "scheduler.yaml"
    file.write_text(configuration_text(case, "koord-scheduler-config"))
    return load_configuration(file)


@pytest.mark.parametrize("case", ["defaults", "everything"])
def test_the_scheduler_can_use_all_of_its_configuration(case: str, tmp_path: Path) -> None:
    configuration = scheduler_configuration(case, tmp_path)
    assert (configuration.warnings, not_built(configuration, BUILT_IN)) == ((), ())


@pytest.mark.parametrize("case", ["defaults", "everything"])
def test_the_descheduler_can_use_all_of_its_configuration(case: str, tmp_path: Path) -> None:
    file = tmp_path / "descheduler.yaml"
    file.write_text(configuration_text(case, "koord-descheduler-config"))
    configuration = load_descheduler_configuration(file, Catalogue(BUILT_IN_DESCHEDULER_PLUGINS))
    assert (configuration.healthz.host, configuration.metrics.host) == ("127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize("case", ["defaults", "everything"])
def test_without_authentication_nothing_is_served_but_on_loopback(case: str) -> None:
    scheduler = scheduler_options(arguments(case, "Deployment", "koord-scheduler"))
    of_manager = manager(case)
    assert scheduler.address.host == "127.0.0.1"
    assert {of_manager.metrics_address.host, of_manager.health_address.host} == {"127.0.0.1"}


def test_without_job_preemption_single_pods_are_preempted_for() -> None:
    (profile,) = yaml.safe_load(configuration_text("everything", "koord-scheduler-config"))["profiles"]
    assert [each["name"] for each in profile["plugins"]["postFilter"]["enabled"]][-1] == "DefaultPreemption"
    (coscheduling,) = [each["args"] for each in profile["pluginConfig"] if each["name"] == "Coscheduling"]
    assert coscheduling["enablePreemption"] is False


def test_the_scheduler_understands_its_arguments() -> None:
    options = scheduler_options(arguments("everything", "Deployment", "koord-scheduler"))
    assert (options.without_effect, options.secure.port) == ((), ports("everything", "koord-scheduler")["metrics"])


def test_the_manager_understands_its_arguments() -> None:
    options = manager("everything")
    assert options.remarks == ()
    assert ports("everything", "koord-manager") == {
        "webhook-server": options.environment.port,
        "metrics": options.secure.port,
    }
    assert (options.config_namespace, options.environment.namespace) == (ELSEWHERE, ELSEWHERE)


def test_the_service_leads_to_the_port_of_the_webhooks() -> None:
    (port,) = objects("everything")["Service", "koordinator-webhook-service"]["spec"]["ports"]
    assert port["targetPort"] == manager("everything").environment.port


def koordlet(case: str) -> KoordletOptions:
    return koordlet_options(arguments(case, "DaemonSet", "koordlet"), {"NODE_NAME": "node-1"})


def test_koordlet_understands_its_arguments() -> None:
    options = koordlet("everything")
    assert (options.remarks, options.listen.port) == ((), 9317)


def test_prometheus_reaches_koordlet_only_where_it_is_to() -> None:
    assert (koordlet("defaults").listen.host, koordlet("everything").listen.host) == ("127.0.0.1", "")


def test_folders_of_the_node_are_those_of_the_values() -> None:
    spec = pod_spec("everything", "DaemonSet", "koordlet")
    folders = {each["name"]: each.get("hostPath", {}).get("path") for each in spec["volumes"]}
    mounted = {each["mountPath"]: folders[each["name"]] for each in spec["containers"][0]["volumeMounts"]}
    hooks = koordlet("everything").hooks
    assert mounted["/host-var-run-koordlet"] == str(Path(hooks.endpoint).parent) == "/run/agents"
    assert mounted["/metric-data"] == "/data/koordlet"
    assert mounted["/host-var-lib/terway/qos"] == "/var/lib/terway/qos"
    assert koordlet("everything").folders.samples == Path("/metric-data")


def test_the_device_daemon_understands_its_arguments() -> None:
    options = device_daemon_options(arguments("everything", "DaemonSet", "koord-device-daemon"), {})
    assert options.remarks == ()


def test_the_recommender_alone_is_one_deployment_and_one_definition() -> None:
    found = recorded("recommender")
    programs = [each["metadata"]["name"] for each in found if each["kind"] in ("Deployment", "DaemonSet")]
    definitions = [each["metadata"]["name"] for each in found if each["kind"] == "CustomResourceDefinition"]
    roles = {each["metadata"]["name"] for each in found if each["kind"] == "ClusterRole"}
    options = manager("recommender")

    assert (programs, definitions) == (["koord-manager"], ["recommendations.analysis.koordinator.sh"])
    assert {"koord-manager-recommender", "koord-manager-recommender-updates"} <= roles
    assert [name for name in CONTROLLERS if options.runs_controller(name)] == ["recommender"]
    assert options.features.enabled("Recommender")


def test_images_are_those_of_the_values() -> None:
    found = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]["containers"][0]["image"]
        for each in recorded("everything")
        if each["kind"] in ("Deployment", "DaemonSet")
    }
    usual = {name: f"registry.example/team/{name}:{koordinator.__version__}" for name in PROGRAMS}
    assert found == {
        **usual,
        "koord-page": f"registry.example/team/koordinator:{koordinator.__version__}",
        "koord-manager": f"registry.example/team/koord-manager:9.9.9@sha256:{'a' * 64}",
    }


def test_pods_run_where_the_values_say() -> None:
    spec = pod_spec("everything", "Deployment", "koord-manager")
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "system"}
    assert (spec["hostNetwork"], spec["imagePullSecrets"]) == (True, [{"name": "pull"}])
    assert list(spec["affinity"]["nodeAffinity"]) == ["preferredDuringSchedulingIgnoredDuringExecution"]
    assert spec["tolerations"] == [{"key": "system", "operator": "Exists"}]
    of_koordlet = pod_spec("everything", "DaemonSet", "koordlet")
    assert (of_koordlet["runtimeClassName"], "tolerations" in of_koordlet) == ("nvidia", False)


def test_where_koordlet_has_a_runtime_class_it_is_given_the_library_of_the_driver() -> None:
    of_koordlet = environment("everything", "DaemonSet", "koordlet")
    assert of_koordlet["NVIDIA_DRIVER_CAPABILITIES"] == "utility"


def test_failure_policies_are_those_of_the_values() -> None:
    entries = webhook_entries("everything")
    assert {entry["timeoutSeconds"] for entry in entries.values()} == {30}
    failing = {name for name, entry in entries.items() if entry["failurePolicy"] == "Fail"}
    assert failing == {"mpod-create", "mpod-update", "vpod", "vnode", "vconfigmap"}


def test_no_api_server_calls_a_webhook_before_a_manager_serves_it() -> None:
    configurations = [each for each in recorded("defaults") if each["kind"].endswith("WebhookConfiguration")]
    assert [each.get("webhooks", []) for each in configurations] == [[], []]


def test_the_permissions_of_the_recommender_come_with_its_gate() -> None:
    found = {case: ("ClusterRole", "koord-manager-recommender") in objects(case) for case in ("defaults", "everything")}
    assert found == {"defaults": False, "everything": True}


def test_a_manager_without_audit_may_not_read_events() -> None:
    def verbs(case: str) -> list[str]:
        rules = objects(case)["ClusterRole", "koord-manager"]["rules"]
        (found,) = [each["verbs"] for each in rules if each["resources"] == ["events"]]
        return list(found)

    assert verbs("unaudited") == ["create", "patch"]
    assert verbs("defaults") == ["list", "watch", "create", "patch"]


def test_the_service_account_has_its_annotations() -> None:
    account = objects("everything")["ServiceAccount", "koord-manager"]
    assert account["metadata"]["annotations"] == {"example.com/role": "manager"}


def test_monitors_find_the_pods_and_the_service() -> None:
    found = objects("everything")
    for name in ("koord-manager", "koord-scheduler", "koord-descheduler"):
        monitor = found["PodMonitor", f"{name}-metrics-podmonitor"]["spec"]
        labels = found["Deployment", name]["spec"]["template"]["metadata"]["labels"]
        assert monitor["selector"]["matchLabels"].items() <= labels.items()
        assert monitor["podMetricsEndpoints"][0]["port"] in ports("everything", name)
    service = found["Service", "koordlet-service"]
    monitor = found["ServiceMonitor", "koordlet-service-monitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [each["port"] for each in monitor["endpoints"]] == [each["name"] for each in service["spec"]["ports"]]


def definitions(case: str) -> dict[str, Mapping[str, Any]]:
    return {
        each["metadata"]["name"].split(".")[0]: each["metadata"].get("annotations") or {}
        for each in recorded(case)
        if each["kind"] == "CustomResourceDefinition"
    }


def test_custom_resources_survive_the_release_unless_they_are_not_to() -> None:
    kept = {name for name, annotations in definitions("defaults").items() if "helm.sh/resource-policy" in annotations}
    assert kept == {each["spec"]["names"]["plural"] for each in custom_resource_definitions()}
    assert not any("helm.sh/resource-policy" in annotations for annotations in definitions("everything").values())


def test_one_definition_can_be_left_out() -> None:
    assert definitions("defaults").keys() - definitions("everything").keys() == {"reservations"}


def test_every_definition_has_its_value() -> None:
    switches = yaml.safe_load((CHART / "values.yaml").read_text())["crds"]
    assert switches.keys() - {"managed", "keep"} == definitions("defaults").keys()


def test_each_program_can_be_left_out() -> None:
    assert {each["kind"] for each in recorded("least")} == {
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "Deployment",
        "PodDisruptionBudget",
        "Role",
        "RoleBinding",
        "ServiceAccount",
    }
    assert {each["metadata"]["name"] for each in recorded("least") if each["kind"] == "Deployment"} == {
        "koord-scheduler"
    }


def test_a_configuration_of_the_users_own_is_rendered() -> None:
    text = configuration_text("least", "koord-scheduler-config")
    assert text.splitlines() == ["# of koordinator-system", "kind: KubeSchedulerConfiguration"]
