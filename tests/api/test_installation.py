"""What an installation consists of: complete, consistent in itself, and safe to apply."""

from __future__ import annotations

import itertools
import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import koordinator
from koordinator.api.codec import convert
from koordinator.api.core import ConfigMap
from koordinator.api.manifests.installation import PARTS, Installation, deletion_order, kustomization, manifest_files
from koordinator.api.priority import PRIORITY_RANGES, PriorityClass
from koordinator.device_daemon.options import parse_options as device_daemon_options
from koordinator.koordlet.command_line import parse_options as koordlet_options
from koordinator.koordlet.options import Options as KoordletOptions
from koordinator.manager.command_line import parse_options as manager_options
from koordinator.manager.environment import read_environment
from koordinator.manager.webhook.admission import ALLOWED, AdmissionRequest
from koordinator.manager.webhook.config_map.validating import ConfigMapValidatingHandler
from koordinator.model.slo_configuration.configuration import SLOConfiguration
from koordinator.node.host import HOOK_SERVERS, Host
from koordinator.scheduler.configuration import load_configuration, not_built
from koordinator.scheduler.options import parse_options as scheduler_options
from koordinator.scheduler.plugins.device_share.part import templates_of
from koordinator.scheduler.plugins.table import BUILT_IN
from tests.yaml_documents import yaml_documents

Document = dict[str, Any]
REPOSITORY = Path(__file__).resolve().parents[2]
HOME = "koordinator-system"
ON_EVERY_NODE = ("koordlet", "koord-device-daemon")
CLUSTER_SCOPED = {
    "Namespace",
    "CustomResourceDefinition",
    "PriorityClass",
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
}


def documents(installation: Installation | None = None, *parts: str) -> list[Document]:
    return deepcopy(read(installation or Installation(), parts or PARTS))


@cache
def read(installation: Installation, parts: tuple[str, ...]) -> list[Document]:
    """Once for each installation: to write and read sixteen definitions takes a second."""
    files = manifest_files(installation, parts)
    return list(itertools.chain.from_iterable(yaml_documents(text) for text in files.values()))


def named(kind: str, name: str, installation: Installation | None = None) -> Document:
    (found,) = [each for each in documents(installation) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def deployment(program: str) -> Document:
    return named("DaemonSet" if program in ON_EVERY_NODE else "Deployment", program)


def container(program: str) -> Document:
    (only,) = deployment(program)["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def arguments(program: str) -> list[str]:
    return [argument.replace("$(POD_NAMESPACE)", HOME) for argument in container(program)["args"]]


def webhooks(configuration: Document) -> list[Document]:
    entries: list[Document] = json.loads(configuration["metadata"]["annotations"]["template"])
    return entries


def test_what_something_needs_comes_before_it() -> None:
    kinds = [document["kind"] for document in documents()]
    assert list(dict.fromkeys(kinds)) == [
        "Namespace",
        "CustomResourceDefinition",
        "PriorityClass",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "ConfigMap",
        "Service",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "Deployment",
        "PodDisruptionBudget",
        "DaemonSet",
    ]


def test_webhooks_are_deleted_first_and_the_namespace_last() -> None:
    paths = list(deletion_order(manifest_files(Installation())))
    assert (paths[0], paths[-1]) == ("webhook/manifests.yaml", "namespace.yaml")


def test_a_deletion_leaves_nothing_out() -> None:
    files = manifest_files(Installation())
    assert deletion_order(files) == files


def test_a_kustomization_lists_every_file() -> None:
    files = manifest_files(Installation())
    assert yaml.safe_load(kustomization(files))["resources"] == list(files)


@pytest.mark.parametrize("name", [HOME, "colocation", "123", "null"])
def test_all_that_is_in_a_namespace_is_in_the_one_that_was_requested(name: str) -> None:
    found = {
        document["metadata"].get("namespace")
        for document in documents(Installation(namespace=name))
        # What lets programs read the authority of clients is where that is.
        if document["kind"] not in CLUSTER_SCOPED and document["metadata"].get("namespace") != "kube-system"
    }
    assert found == {name}


def test_a_namespace_that_kubectl_would_take_for_a_number_is_quoted() -> None:
    text = "".join(manifest_files(Installation(namespace="1e3")).values())
    assert ": 1e3\n" not in text


def test_nothing_names_the_usual_namespace_when_another_was_requested() -> None:
    assert HOME not in "".join(manifest_files(Installation(namespace="colocation")).values())


def test_the_lease_of_the_scheduler_is_in_the_namespace_of_the_installation() -> None:
    config_map = named("ConfigMap", "koord-scheduler-config", Installation(namespace="123"))
    configuration = yaml.safe_load(config_map["data"]["koord-scheduler-config"])
    assert configuration["leaderElection"]["resourceNamespace"] == "123"


def test_image_and_replicas_are_those_that_were_requested() -> None:
    requested = Installation(image="registry.example/koordinator@sha256:0123", replicas=3)
    specs = [document["spec"] for document in documents(requested) if document["kind"] in ("Deployment", "DaemonSet")]
    images = {each["image"] for spec in specs for each in spec["template"]["spec"]["containers"]}
    assert (images, {spec["replicas"] for spec in specs if "replicas" in spec}) == ({requested.image}, {3})


def test_each_program_has_an_image_of_its_own_name_where_the_name_says_so() -> None:
    requested = Installation(image="registry.example/{program}:1")
    found = {
        document["metadata"]["name"]: [each["image"] for each in document["spec"]["template"]["spec"]["containers"]]
        for document in documents(requested)
        if document["kind"] in ("Deployment", "DaemonSet")
    }
    assert found == {name: [f"registry.example/{name}:1"] for name in found}
    assert found.keys() >= {"koordlet", "koord-manager"}


def test_the_usual_images_have_the_version_of_the_package() -> None:
    assert Installation().image == f"{{program}}:{koordinator.__version__}"


@pytest.mark.parametrize("entry", [PriorityClass.PROD, PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE])
def test_priority_classes_begin_their_bands(entry: PriorityClass) -> None:
    assert named("PriorityClass", entry.value)["value"] == PRIORITY_RANGES[entry].start


def test_the_priority_class_of_the_programs_is_above_all_bands() -> None:
    classes = {
        document["spec"]["template"]["spec"]["priorityClassName"]
        for document in documents()
        if document["kind"] == "Deployment"
    }
    assert classes == {"system-cluster-critical"}


@pytest.mark.parametrize("program", ["koord-manager", "koord-scheduler"])
def test_a_program_runs_under_the_account_that_the_roles_are_bound_to(program: str) -> None:
    account = {
        "kind": "ServiceAccount",
        "name": deployment(program)["spec"]["template"]["spec"]["serviceAccountName"],
        "namespace": HOME,
    }
    bindings = [named("ClusterRoleBinding", program), named("RoleBinding", program)]
    assert [binding["subjects"] for binding in bindings] == [[account], [account]]


@pytest.mark.parametrize("program", ["koord-manager", "koord-scheduler"])
def test_bindings_refer_to_roles_that_exist(program: str) -> None:
    references = [named(f"{kind}Binding", program)["roleRef"] for kind in ("ClusterRole", "Role")]
    assert [named(each["kind"], each["name"])["kind"] for each in references] == ["ClusterRole", "Role"]


@pytest.mark.parametrize("program", ["koord-manager", "koord-scheduler"])
def test_no_role_grants_everything(program: str) -> None:
    roles = [named("ClusterRole", program), named("Role", program)]
    granted = [word for role in roles for rule in role["rules"] for values in rule.values() for word in values]
    assert "*" not in granted


@pytest.mark.parametrize("program", ["koord-manager", "koord-scheduler"])
def test_pods_meet_the_restricted_security_standard(program: str) -> None:
    pod, own = deployment(program)["spec"]["template"]["spec"]["securityContext"], container(program)["securityContext"]
    assert (pod["runAsNonRoot"], pod["seccompProfile"], own["allowPrivilegeEscalation"], own["capabilities"]) == (
        True,
        {"type": "RuntimeDefault"},
        False,
        {"drop": ["ALL"]},
    )


@pytest.mark.parametrize("program", ["koord-manager", "koord-scheduler"])
def test_budget_spread_and_deployment_mean_the_same_pods(program: str) -> None:
    spec = deployment(program)["spec"]
    selectors = [
        spec["selector"],
        named("PodDisruptionBudget", program)["spec"]["selector"],
        *(constraint["labelSelector"] for constraint in spec["template"]["spec"]["topologySpreadConstraints"]),
    ]
    assert {json.dumps(selector) for selector in selectors} == {json.dumps({"matchLabels": {"koord-app": program}})}
    assert spec["template"]["metadata"]["labels"]["koord-app"] == program


def test_the_scheduler_understands_its_arguments() -> None:
    options = scheduler_options(arguments("koord-scheduler"))
    assert options.without_effect == ()


def test_the_manager_understands_its_arguments() -> None:
    options = manager_options(arguments("koord-manager"), {"POD_NAMESPACE": HOME})
    assert options.remarks == ()


def test_the_manager_keeps_everything_in_its_own_namespace() -> None:
    given = [argument.replace("$(POD_NAMESPACE)", "colocation") for argument in container("koord-manager")["args"]]
    options = manager_options(given, {"POD_NAMESPACE": "colocation"})
    assert {
        options.leader_election_namespace,
        options.config_namespace,
        options.pod_enhanced_validator.config_namespace,
        options.environment.namespace,
    } == {"colocation"}


def ports(program: str) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(program)["ports"]}


def test_the_scheduler_is_probed_where_it_serves() -> None:
    options = scheduler_options(arguments("koord-scheduler"))
    assert ports("koord-scheduler") == {"metrics": options.secure.port}


def test_the_manager_is_probed_and_queried_where_it_serves() -> None:
    options = manager_options(arguments("koord-manager"), {})
    assert ports("koord-manager") == {
        "webhook-server": read_environment({}).port,
        "metrics": options.secure.port,
    }


@pytest.mark.parametrize("program", ["koord-manager", "koord-scheduler", "koord-descheduler"])
def test_probes_name_the_secure_port_of_the_container(program: str) -> None:
    probes = [container(program)[probe]["httpGet"] for probe in ("readinessProbe", "livenessProbe")]
    assert [(each["port"], each["scheme"]) for each in probes] == [("metrics", "HTTPS")] * 2


def test_without_tls_nothing_is_served_but_on_loopback() -> None:
    scheduler = scheduler_options(arguments("koord-scheduler"))
    manager = manager_options(arguments("koord-manager"), {})
    found = {scheduler.address.host, manager.metrics_address.host, manager.health_address.host}
    found |= {manager.profile_address.host, options_of_koordlet().listen.host}
    found.add(device_daemon_options(arguments("koord-device-daemon"), {}).metrics.host)
    assert found == {"127.0.0.1"}


def test_the_service_leads_to_the_webhooks_of_the_manager() -> None:
    spec = named("Service", "koordinator-webhook-service")["spec"]
    labels = deployment("koord-manager")["spec"]["template"]["metadata"]["labels"]
    assert spec["selector"].items() <= labels.items()
    assert spec["ports"][0]["targetPort"] == ports("koord-manager")["webhook-server"]


def test_the_manager_writes_its_certificates_where_it_may() -> None:
    mounts = [Path(mount["mountPath"]) for mount in container("koord-manager")["volumeMounts"]]
    assert container("koord-manager")["securityContext"]["readOnlyRootFilesystem"]
    assert any(read_environment({}).certificate_folder.is_relative_to(mount) for mount in mounts)


def test_the_scheduler_reads_the_config_map_where_it_is_mounted(tmp_path: Path) -> None:
    (volume,) = deployment("koord-scheduler")["spec"]["template"]["spec"]["volumes"]
    (mount,) = container("koord-scheduler")["volumeMounts"]
    (item,) = volume["configMap"]["items"]
    assert item["key"] in named("ConfigMap", volume["configMap"]["name"])["data"]
    assert f"--config={mount['mountPath']}/{item['path']}" in arguments("koord-scheduler")


def test_the_scheduler_can_use_all_of_its_configuration(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(named("ConfigMap", "koord-scheduler-config")["data"]["koord-scheduler-config"])
    configuration = load_configuration(path)
    assert (configuration.warnings, not_built(configuration, BUILT_IN)) == ((), ())


def test_the_example_of_the_documentation_schedules_as_the_installation_does() -> None:
    installed = yaml.safe_load(named("ConfigMap", "koord-scheduler-config")["data"]["koord-scheduler-config"])
    example = yaml.safe_load((REPOSITORY / "docs/examples/scheduler.yaml").read_text())
    # Profiles of a program in a pod are for everybody who reaches it.
    assert {**example, "enableProfiling": False} == installed


def test_the_scheduler_can_use_the_templates_of_shared_cards() -> None:
    config_map = named("ConfigMap", "gpu-shared-resource-templates")
    templates, error = templates_of(convert(config_map, ConfigMap))
    assert (error, len(templates)) == ("", 8)
    assert templates["huawei-Ascend-910"]["vir04"] == {
        "huawei.com/npu-core": 4,
        "huawei.com/npu-cpu": 1,
        "koordinator.sh/gpu-memory": 4 << 30,
    }


def test_the_controllers_can_use_the_slo_configuration() -> None:
    configuration, problems = SLOConfiguration().updated(named("ConfigMap", "slo-controller-config")["data"])
    assert (problems, configuration.colocation.strategies.cluster.enable) == ((), True)


def test_the_webhook_lets_the_slo_configuration_in() -> None:
    config_map = named("ConfigMap", "slo-controller-config")
    handler = ConfigMapValidatingHandler(HOME, "slo-controller-config", lambda: (), names_required=True)
    assert handler.handle(AdmissionRequest("CREATE", "", "v1", "configmaps", object=config_map)) is ALLOWED


def configurations(installation: Installation | None = None) -> list[Document]:
    return [each for each in documents(installation, "webhook") if each["kind"].endswith("WebhookConfiguration")]


def test_no_api_server_asks_a_webhook_before_a_manager_serves_it() -> None:
    assert [configuration.get("webhooks", []) for configuration in configurations()] == [[], []]


def test_pods_are_let_in_while_no_manager_responds() -> None:
    policies = {entry["name"]: entry["failurePolicy"] for each in configurations() for entry in webhooks(each)}
    assert [name for name, policy in policies.items() if policy == "Fail"] == ["vconfigmap.koordinator.sh"]


def test_pods_and_quotas_are_refused_while_no_manager_responds_where_that_was_requested() -> None:
    entries = [entry for each in configurations(Installation(failure_policy="Fail")) for entry in webhooks(each)]
    ignored = [entry["name"] for entry in entries if entry["failurePolicy"] == "Ignore"]
    names = ("mnode-status", "vnode", "vpod-template", "vpodbinding")
    assert ignored == [f"{name}.koordinator.sh" for name in names]


@pytest.mark.parametrize("name", ["mpod-create", "mpod-update", "vpod", "melasticquota", "velasticquota"])
def test_the_cluster_and_the_manager_itself_can_come_back_without_the_webhooks(name: str) -> None:
    (entry,) = [
        entry for each in configurations() for entry in webhooks(each) if entry["name"] == f"{name}.koordinator.sh"
    ]
    by_key = {rule["key"]: rule.get("values") for rule in entry["namespaceSelector"]["matchExpressions"]}
    assert by_key == {"control-plane": None, "kubernetes.io/metadata.name": ["kube-system", HOME]}
    assert "control-plane" in named("Namespace", HOME)["metadata"]["labels"]


def options_of_koordlet() -> KoordletOptions:
    return koordlet_options(arguments("koordlet"), {"NODE_NAME": "node-1"})


def mounts(program: str) -> dict[str, str]:
    """Where in the container -> which folder of the node, for what is the node's."""
    volumes = {volume["name"]: volume for volume in deployment(program)["spec"]["template"]["spec"]["volumes"]}
    mounted = container(program)["volumeMounts"]
    return {
        mount["mountPath"]: volumes[mount["name"]]["hostPath"]["path"]
        for mount in mounted
        if "hostPath" in volumes[mount["name"]]
    }


def test_koordlet_understands_its_arguments() -> None:
    assert options_of_koordlet().remarks == ()


def test_the_device_daemon_understands_its_arguments() -> None:
    assert device_daemon_options(arguments("koord-device-daemon"), {}).remarks == ()


@pytest.mark.parametrize("folder", ["cgroup", "sys", "sys_fs", "var_run", "run", "var_lib_kubelet"])
def test_koordlet_finds_a_folder_of_the_node_where_it_is_mounted(folder: str) -> None:
    on_the_node: str = getattr(Host(), folder)
    assert mounts("koordlet")[getattr(options_of_koordlet().host, folder)] == on_the_node


def test_koordlet_sees_the_processes_of_the_node() -> None:
    spec = deployment("koordlet")["spec"]["template"]["spec"]
    assert (options_of_koordlet().host.proc, spec["hostPID"]) == (Host().proc, True)


def test_koordlet_keeps_its_forecasts_over_restarts() -> None:
    assert str(options_of_koordlet().folders.forecasts) in mounts("koordlet")


def test_runtime_proxies_of_the_node_find_the_hooks_of_koordlet() -> None:
    hooks, found = options_of_koordlet().hooks, mounts("koordlet")
    in_pod, on_the_node = Path(hooks.socket), Path(hooks.endpoint)
    assert (in_pod.name, found[str(in_pod.parent)]) == (on_the_node.name, str(on_the_node.parent))
    assert found[hooks.registration_folder.rstrip("/")] == HOOK_SERVERS


def test_pod_resources_are_served_where_clients_of_the_node_look() -> None:
    folder = str(options_of_koordlet().folders.pod_resources)
    assert mounts("koordlet")[folder] == folder


@pytest.mark.parametrize("folder", ["audit", "samples"])
def test_koordlet_may_write_where_it_writes(folder: str) -> None:
    options = koordlet_options([*arguments("koordlet"), "--metric-cache-backend=sqlite"], {"NODE_NAME": "node-1"})
    written = getattr(options.folders, folder)
    writable = {mount["mountPath"] for mount in container("koordlet")["volumeMounts"] if not mount.get("readOnly")}
    assert str(written) in writable


def test_koordlet_reads_the_devices_where_the_device_daemon_writes_them() -> None:
    written = Path(device_daemon_options(arguments("koord-device-daemon"), {}).output).parent
    read = str(options_of_koordlet().folders.devices)
    assert mounts("koord-device-daemon")[str(written)] == mounts("koordlet")[read]


def test_the_device_daemon_finds_the_machine_where_it_is_mounted() -> None:
    options = device_daemon_options(arguments("koord-device-daemon"), {})
    found = mounts("koord-device-daemon")
    sys = options.pci_folder.removesuffix("/bus/pci/devices")
    assert [found[folder] for folder in (options.host_root, sys, options.dev)] == ["/", "/sys", "/dev"]


def test_koordlet_is_probed_where_it_serves() -> None:
    listen = options_of_koordlet().listen
    probes = [container("koordlet")[probe]["httpGet"] for probe in ("readinessProbe", "livenessProbe")]
    assert [(probe["host"], probe["port"]) for probe in probes] == [(listen.host, listen.port)] * 2


def test_koordlet_runs_under_the_account_that_its_role_is_bound_to() -> None:
    name = deployment("koordlet")["spec"]["template"]["spec"]["serviceAccountName"]
    account = {"kind": "ServiceAccount", "name": name, "namespace": HOME}
    assert named("ClusterRoleBinding", "koordlet")["subjects"] == [account]


def test_koordlet_may_not_run_commands_in_pods() -> None:
    """As nodes/proxy, the right of the original, would let it, on every node."""
    rules = named("ClusterRole", "koordlet")["rules"]
    granted = {word for rule in rules for values in rule.values() for word in values}
    assert granted.isdisjoint({"*", "nodes/proxy"})


def test_the_device_daemon_has_no_token() -> None:
    assert deployment("koord-device-daemon")["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("program", ON_EVERY_NODE)
def test_a_program_of_nodes_runs_on_tainted_nodes_and_is_not_preempted(program: str) -> None:
    spec = deployment(program)["spec"]["template"]["spec"]
    assert (spec["tolerations"], spec["priorityClassName"]) == ([{"operator": "Exists"}], "system-node-critical")


def test_the_two_programs_of_nodes_do_not_take_each_others_pods() -> None:
    selectors = [deployment(program)["spec"]["selector"]["matchLabels"] for program in ON_EVERY_NODE]
    assert selectors == [{"koord-app": program} for program in ON_EVERY_NODE]
