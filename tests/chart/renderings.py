"""What Helm makes of the chart with several values, recorded: ``python -m tests.chart.record HELM``.

So the tests here need no Helm. ``fingerprint`` notices a chart that has changed since; tests/real/test_chart.py renders
it with Helm again.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

Document = dict[str, Any]

CHART: Final = Path(__file__).parents[2] / "charts/koordinator"
_FOLDER: Final = Path(__file__).parent / "renderings"
_FINGERPRINT: Final = _FOLDER / "chart.sha256"
KUBERNETES: Final = "1.35.0"
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
        "slo": {"colocation-config": {"enable": True, "cpuReclaimThresholdPercent": 60}},
        "manager": {
            "replicas": 3,
            "image": {"tag": "9.9.9"},
            "log": {"level": 4},
            "webhook": {"port": 9443},
            "metrics": {"addr": "127.0.0.1", "port": 8081},
            "healthProbe": {"port": 8001},
            "hostNetwork": True,
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "system", "operator": "Exists"}],
            "extraArgs": ["--rest-config-qps=50"],
        },
        "scheduler": {
            "port": 10252,
            "enableJobPreemption": False,
            "deviceShare": {"gpuShareUnsupportedModels": []},
            "monitorEnabled": True,
            "featureGates": "ResizePod=true",
        },
        "descheduler": {"port": 10253, "monitorEnabled": True, "extraArgs": ["--kube-api-qps=50"]},
        "koordlet": {
            "features": "TerwayQoS=true,Accelerators=true",
            "enableServiceMonitor": True,
            "metrics": {"port": 9317},
            "runtimeClassName": "nvidia",
            "hostDirs": {"koordletSockDir": "/run/agents/", "koordletTSDBDir": "/data/koordlet"},
            "nodeAffinity": {"nodeAffinity": {}},
            "tolerations": [],
        },
        "deviceDaemon": {"nodeSelector": {"accelerator": "npu"}},
    },
    "least": {
        "installation": {"createNamespace": False},
        "crds": {"managed": False},
        "manager": {"enabled": False},
        "descheduler": {"enabled": False},
        "deviceDaemon": {"enabled": False},
        "scheduler": {"config": "# of {{ .Values.installation.namespace }}\nkind: KubeSchedulerConfiguration\n"},
        "koordlet": {"enabled": False},
    },
}


def rendered_by(helm: Path, values: Document) -> list[Document]:
    """What the program ``helm`` renders, in the form of ``recorded``. subprocess.CalledProcessError if it refuses."""
    command = [str(helm), "template", "koordinator", str(CHART), f"--kube-version={KUBERNETES}", "--values=-"]
    text = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=True).stdout
    return [_shortened(each) for each in yaml.safe_load_all(text) if each]


def _shortened(document: Document) -> Document:
    """The specs of CustomResourceDefinitions are left out: they are made from the types, and tests/api has them."""
    if document["kind"] != "CustomResourceDefinition":
        return document
    return {name: part for name, part in document.items() if name != "spec"}


@cache
def recorded(case: str) -> tuple[Document, ...]:
    """The objects of a case; do not change them."""
    return tuple(json.loads((_FOLDER / f"{case}.json").read_text()))


def write(case: str, documents: list[Document]) -> None:
    (_FOLDER / f"{case}.json").write_text(json.dumps(documents, indent=1) + "\n")
    _FINGERPRINT.write_text(fingerprint() + "\n")


def recorded_fingerprint() -> str:
    return _FINGERPRINT.read_text().strip()


def fingerprint() -> str:
    """Of everything that decides what is rendered: the files of the chart, and the cases."""
    digest = hashlib.sha256(json.dumps(CASES).encode())
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(CHART)}\n".encode() + path.read_bytes())
    return digest.hexdigest()
