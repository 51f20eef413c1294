"""What Helm makes of the chart with several values, recorded: ``python -m tests.chart.record HELM``.

So the tests here need no Helm. ``fingerprint`` notices a chart that has changed since; tests/real/test_chart.py renders
it with Helm again. What is refused is recorded as well, and nothing is recorded of a chart that renders something else
where values are missing.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache, reduce
from operator import getitem
from pathlib import Path
from typing import Any, Final

import yaml

import koordinator

Document = dict[str, Any]

CHART: Final = Path(__file__).parents[2] / "charts/koordinator"
_FOLDER: Final = Path(__file__).parent / "renderings"
_FINGERPRINT: Final = _FOLDER / "chart.sha256"
_REFUSALS: Final = _FOLDER / "refusals.json"
_SLO_EXAMPLE: Final = yaml.safe_load((CHART.parents[1] / "docs/examples/slo-controller-config.yaml").read_text())
_PODS: Final[Document] = {
    "podAnnotations": {"example.com/team": "nodes"},
    "podLabels": {"team": "nodes"},
    "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
}
"""What the pods of every program can have."""
KUBERNETES: Final = "1.35.0"
_VERSION: Final = "@version@"
"""In a record, so that a release changes none of them."""
CASES: Final[dict[str, Document]] = {
    "defaults": {},
    "everything": {
        "installation": {"namespace": "elsewhere"},
        "imageRepositoryHost": "registry.example/team/",
        "imagePullSecrets": [{"name": "pull"}],
        "featureGates": "PodMutatingWebhook=false, Recommender=true",
        "crds": {"keep": False, "reservations": False},
        "serviceAccount": {"annotations": {"example.com/role": "manager"}},
        "webhookConfiguration": {"failurePolicy": {"pods": "Fail", "nodes": "Fail"}, "timeoutSeconds": 30},
        "slo": {key: json.loads(text) for key, text in _SLO_EXAMPLE["data"].items()},
        "manager": {
            "replicas": 3,
            "image": {"tag": "9.9.9", "digest": f"sha256:{'a' * 64}", "pullPolicy": "Always"},
            "monitorEnabled": True,
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            **_PODS,
            "log": {"level": 4},
            "webhook": {"port": 9443, "clientCAConfigMap": "api-servers"},
            "metrics": {"addr": "127.0.0.1", "port": 8081},
            "healthProbe": {"port": 8001},
            "audit": {"maxMegabytes": 512, "maxAge": "720h", "persistentVolumeClaim": "audit"},
            "hostNetwork": True,
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "system", "operator": "Exists"}],
            "extraArgs": ["--rest-config-qps=50"],
        },
        "monitoring": {
            "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Koordinator"}},
            "alerts": {"enabled": True, "labels": {"release": "prometheus"}},
        },
        "networkPolicy": {
            "enabled": True,
            "apiServerPorts": [8443],
            "webhookFrom": [{"ipBlock": {"cidr": "10.0.0.0/28"}}],
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
            "dashboardFrom": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
            "egress": [{"ports": [{"port": 9090}]}],
        },
        "scheduler": {
            **_PODS,
            "port": 10252,
            "enableJobPreemption": False,
            "deviceShare": {"gpuShareUnsupportedModels": []},
            "monitorEnabled": True,
            "featureGates": "ResizePod=true",
            "securePort": 20259,
        },
        "descheduler": {**_PODS, "port": 10253, "monitorEnabled": True, "extraArgs": ["--kube-api-qps=50"]},
        "koordlet": {
            **_PODS,
            "features": "TerwayQoS=true,Accelerators=true",
            "enableServiceMonitor": True,
            "metrics": {"port": 9317},
            "runtimeClassName": "nvidia",
            "hostDirs": {"koordletSockDir": "/run/agents/", "koordletTSDBDir": "/data/koordlet"},
            "nodeAffinity": {"nodeAffinity": {}},
            "tolerations": [],
        },
        "deviceDaemon": {**_PODS, "nodeSelector": {"accelerator": "npu"}},
        "dashboard": {
            **_PODS,
            "enabled": True,
            "port": 9443,
            "tls": {"secretName": "page-tls"},
            "service": {"type": "LoadBalancer", "port": 8443, "annotations": {"example.com/internal": "true"}},
            "tolerations": [{"key": "system", "operator": "Exists"}],
            "extraArgs": ["--request-timeout=30"],
        },
    },
    "page": {"dashboard": {"enabled": True}},
    "least": {
        "installation": {"createNamespace": False},
        "crds": {"managed": False},
        "priorityClasses": {"managed": False},
        "manager": {"enabled": False},
        "descheduler": {"enabled": False},
        "deviceDaemon": {"enabled": False},
        "scheduler": {"config": "# of {{ .Values.installation.namespace }}\nkind: KubeSchedulerConfiguration\n"},
        "koordlet": {"enabled": False},
    },
    "unaudited": {
        "crds": {"managed": False},
        "networkPolicy": {"enabled": True},
        "manager": {"audit": {"maxMegabytes": 0}},
        "scheduler": {"enabled": False},
        "descheduler": {"enabled": False},
        "deviceDaemon": {"enabled": False},
        "koordlet": {"enabled": False},
    },
    "recommender": yaml.safe_load((CHART / "recommender.yaml").read_text()),
}

DEFAULTS: Final[Document] = yaml.safe_load((CHART / "values.yaml").read_text())
REFUSED: Final[dict[str, tuple[Document, str]]] = {
    "a misspelt name": ({"scheduler": {"replcas": 3}}, "scheduler.replcas"),
    "a misspelt program": ({"kordlet": {"enabled": False}}, "kordlet"),
    "a name of another program": ({"koordlet": {"featureGates": "Accelerators=true"}}, "koordlet.featureGates"),
    "a name like no other": ({"zzz": 1}, "zzz"),
    "several names": ({"crds": {"reservation": False}, "manager": {"replica": 1}}, "crds.reservation"),
    "a text for a boolean": ({"manager": {"enabled": "false"}}, "manager.enabled"),
    "a text for a number": ({"scheduler": {"replicas": "three"}}, "scheduler.replicas"),
    "a boolean for a mapping": ({"manager": False}, "manager"),
    "a number below zero": ({"scheduler": {"replicas": -1}}, "scheduler.replicas"),
    "a port of 0": ({"manager": {"webhook": {"port": 0}}}, "manager.webhook.port"),
    "a port of 70000": ({"koordlet": {"metrics": {"port": 70000}}}, "koordlet.metrics.port"),
    "a negative time limit": ({"webhookConfiguration": {"timeoutSeconds": -1}}, "webhookConfiguration.timeoutSeconds"),
    "a policy in lower case": (
        {"webhookConfiguration": {"failurePolicy": {"pods": "ignore"}}},
        "webhookConfiguration.failurePolicy.pods",
    ),
    "a quantity that is none": (
        {"koordlet": {"resources": {"limits": {"cpu": "abc"}}}},
        "koordlet.resources.limits.cpu",
    ),
    "a negative quantity": (
        {"koordlet": {"resources": {"requests": {"memory": -1}}}},
        "koordlet.resources.requests.memory",
    ),
    "a misspelt name within one value": (
        {"koordlet": {"resources": {"limts": {"cpu": 1}}}},
        "koordlet.resources: Additional property limts",
    ),
    "a misspelt configuration": (
        {"slo": {"colocation-confg": {"enable": True}}},
        "slo: Additional property colocation-confg",
    ),
    "more than the whole node": (
        {"slo": {"colocation-config": {"cpuReclaimThresholdPercent": 900}}},
        "slo.colocation-config.cpuReclaimThresholdPercent",
    ),
    "a misspelt field of a configuration": (
        {"slo": {"colocation-config": {"cpuReclaimThresholdPercnt": 50}}},
        "slo.colocation-config: Additional property cpuReclaimThresholdPercnt",
    ),
    "a share of some nodes that is none": (
        {"slo": {"resource-threshold-config": {"nodeStrategies": [{"name": "a", "cpuSuppressThresholdPercent": -1}]}}},
        "slo.resource-threshold-config.nodeStrategies.0.cpuSuppressThresholdPercent",
    ),
    "a text for a share": (
        {"slo": {"colocation-config": {"memoryReclaimThresholdPercent": "60%"}}},
        "slo.colocation-config.memoryReclaimThresholdPercent",
    ),
    "an image with a blank": ({"manager": {"image": {"repository": "koord inator"}}}, "manager.image.repository"),
    "a registry that is a URL": ({"imageRepositoryHost": "https://registry.example"}, "imageRepositoryHost"),
    "a digest that is none": ({"scheduler": {"image": {"digest": "sha256:abc"}}}, "scheduler.image.digest"),
    "an unknown pull policy": ({"koordlet": {"image": {"pullPolicy": "always"}}}, "koordlet.image.pullPolicy"),
    "a label that selects the pods": ({"manager": {"podLabels": {"koord-app": "x"}}}, "manager.podLabels"),
    "an affinity that there is not": (
        {"manager": {"affinity": {"podAntiAfinity": {}}}},
        "manager.affinity: Additional property podAntiAfinity",
    ),
    "a variable without a name": ({"manager": {"env": [{"value": "x"}]}}, "manager.env.0"),
    "a port of no API server": ({"networkPolicy": {"apiServerPorts": [0]}}, "networkPolicy.apiServerPorts.0"),
    "a relative folder": (
        {"koordlet": {"hostDirs": {"kubeletLibDir": "var/lib/kubelet"}}},
        "koordlet.hostDirs.kubeletLibDir",
    ),
    "a gate without a value": ({"featureGates": "Recommender"}, "featureGates: Recommender"),
    "a gate that is neither on nor off": ({"featureGates": "Recommender=on"}, "featureGates: Recommender=on"),
    "an unknown gate": (
        {"featureGates": "PodMutatingWebhok=true"},
        "featureGates: unknown feature gate PodMutatingWebhok",
    ),
    "an unknown gate of the scheduler": (
        {"scheduler": {"featureGates": "Foo=true"}},
        "scheduler.featureGates: unknown feature gate Foo",
    ),
    "an unknown gate of koordlet": (
        {"koordlet": {"features": "BECPUEvict=true, BEMemEvict=true"}},
        "koordlet.features: unknown feature gate BEMemEvict",
    ),
    "an image of the original": (
        {"koordlet": {"image": {"repository": "koordinator-sh/koordlet"}}},
        "koordlet.image.repository",
    ),
    "a mirror of the original": (
        {"manager": {"image": {"repository": "mirror.example/koordinator-sh/koord-manager"}}},
        "manager.image.repository",
    ),
    "the registry of the original": (
        {"imageRepositoryHost": "registry.cn-beijing.aliyuncs.com"},
        "imageRepositoryHost",
    ),
}
"""Case -> values, and what the refusal has to name."""


def chart_with_values(values: Document, folder: Path) -> Path:
    """The chart with other default values, as `helm upgrade --reuse-values` has it: with those of before."""
    chart = folder / "koordinator"
    shutil.copytree(CHART, chart, dirs_exist_ok=True)
    (chart / "values.yaml").write_text(json.dumps(values))
    return chart


def value_paths(values: Document, *above: str) -> list[tuple[str, ...]]:
    """Every value and every mapping of values. What `known-values.yaml` has no names below is one value."""
    names = known_values()["names"]
    for name in above:
        names = names[name]
    paths: list[tuple[str, ...]] = []
    for name, value in values.items():
        paths.append((*above, name))
        if isinstance(names.get(name), dict) and isinstance(value, dict):
            paths += value_paths(value, *above, name)
    return paths


def without(paths: Iterable[tuple[str, ...]], *, null: bool) -> Document:
    """The defaults less these values, or with null for them."""
    values: Document = json.loads(json.dumps(DEFAULTS))
    # What is deeper goes first, so that it is still there.
    for path in sorted(paths, key=len, reverse=True):
        *above, name = path
        mapping = reduce(getitem, above, values)
        if null:
            mapping[name] = None
        else:
            del mapping[name]
    return values


@cache
def known_values() -> Document:
    document: Document = yaml.safe_load((CHART / "known-values.yaml").read_text())
    return document


def incomplete_values() -> list[Document]:
    """Default values with which the chart renders what it renders with all of them: each is missing in several."""
    paths = value_paths(DEFAULTS)
    leaves = [path for path in paths if not any(each[:-1] == path for each in paths)]
    tops = [path for path in paths if len(path) == 1]
    return [{}, without(leaves, null=False), without(leaves, null=True), without(tops, null=True)]


def refusal(helm: Path, values: Document) -> str:
    """What the program says to values that it is to refuse. AssertionError if it takes them."""
    try:
        rendered_by(helm, values)
    except subprocess.CalledProcessError as error:
        return str(error.stderr)
    raise AssertionError(f"{values} are not refused")


def rendered_by(helm: Path, values: Document, chart: Path = CHART) -> list[Document]:
    """What the program ``helm`` renders, in the form of ``recorded``. subprocess.CalledProcessError if it refuses."""
    command = [str(helm), "template", "koordinator", str(chart), f"--kube-version={KUBERNETES}", "--values=-"]
    text = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=True).stdout
    return [_shortened(each) for each in yaml.safe_load_all(text) if each]


def _without_version(text: str) -> str:
    return re.sub(rf"(?<![\w.]){re.escape(koordinator.__version__)}(?![\w.])", _VERSION, text)


def _shortened(document: Document) -> Document:
    """What is long and made elsewhere is left out: the specs of CustomResourceDefinitions, made from the types, and of
    rules, and the dashboards. tests/api and tests/docs have those."""
    left_out = {"CustomResourceDefinition": "spec", "PrometheusRule": "spec"}.get(document["kind"])
    if document["kind"] == "ConfigMap" and document["metadata"]["name"].startswith("koordinator-dashboard-"):
        return {**document, "data": dict.fromkeys(document["data"], "")}
    return {name: part for name, part in document.items() if name != left_out}


@cache
def recorded(case: str) -> tuple[Document, ...]:
    """The objects of a case; do not change them."""
    text = (_FOLDER / f"{case}.json").read_text()
    return tuple(json.loads(text.replace(_VERSION, koordinator.__version__)))


@cache
def recorded_refusals() -> dict[str, str]:
    refusals: dict[str, str] = json.loads(_REFUSALS.read_text())
    return refusals


def record(helm: Path) -> None:
    """Nothing is recorded where missing values are not the same as the defaults."""
    defaults = rendered_by(helm, {})
    for values in incomplete_values():
        with tempfile.TemporaryDirectory() as folder:
            assert rendered_by(helm, {}, chart_with_values(values, Path(folder))) == defaults, values
    for case, given in CASES.items():
        (_FOLDER / f"{case}.json").write_text(_without_version(json.dumps(rendered_by(helm, given), indent=1)) + "\n")
    refusals = {case: refusal(helm, given) for case, (given, _) in REFUSED.items()}
    _REFUSALS.write_text(json.dumps(refusals, indent=1) + "\n")
    _FINGERPRINT.write_text(fingerprint() + "\n")


def recorded_fingerprint() -> str:
    return _FINGERPRINT.read_text().strip()


def fingerprint() -> str:
    """Of everything that decides what is rendered: the files of the chart, and the cases."""
    digest = hashlib.sha256(json.dumps([CASES, REFUSED]).encode())
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(CHART)}\n{_without_version(path.read_text())}".encode())
    return digest.hexdigest()
