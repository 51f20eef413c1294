"""The charts of the Go original, as far as an upgrade from them depends on them: their values, and their objects.

They are recorded from the folder ``versions`` of github.com/koordinator-sh/charts, with the path of a Helm:
``python -m tests.chart.original HELM FOLDER``. Of objects there is what Helm and our templates look at, without the
texts of their configurations, schemas and roles.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

Document = dict[str, Any]

_FOLDER: Final = Path(__file__).parent / "original"
VERSIONS: Final = tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))
WITH_OBJECTS: Final = ("1.4.0", "1.8.0")
"""The oldest one that people still upgrade from, and the newest one."""
_KUBERNETES: Final = "1.35.0"


def original_values(version: str) -> Document:
    values: Document = _recorded(version)["values"]
    return values


def original_objects(version: str) -> list[Document]:
    objects: list[Document] = _recorded(version)["objects"]
    return objects


def original_chart(version: str, folder: Path) -> Path:
    """A chart that installs the objects of a version, and has its values."""
    chart = folder / version
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text(json.dumps({"apiVersion": "v2", "name": "koordinator", "version": version}))
    (chart / "values.yaml").write_text(json.dumps(original_values(version)))
    (chart / "templates/objects.yaml").write_text("\n---\n".join(map(json.dumps, original_objects(version))))
    return chart


def _recorded(version: str) -> Document:
    document: Document = json.loads((_FOLDER / f"{version}.json").read_text())
    return document


def _record(helm: Path, chart: Path, version: str) -> None:
    document: Document = {"values": yaml.safe_load((chart / "values.yaml").read_text())}
    if version in WITH_OBJECTS:
        command = [str(helm), "template", "koordinator", str(chart), f"--kube-version={_KUBERNETES}"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        document["objects"] = [_shortened(each) for each in yaml.safe_load_all(text) if each]
    (_FOLDER / f"{version}.json").write_text(json.dumps(document, indent=1) + "\n")


def _shortened(document: Document) -> Document:
    metadata = {name: each for name, each in document["metadata"].items() if name in ("name", "namespace", "labels")}
    shortened: Document = {"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": metadata}
    shorten = _SHORTENED.get(document["kind"])
    return shortened | shorten(document) if shorten else shortened


def _definition(document: Document) -> Document:
    versions = [
        {name: each for name, each in version.items() if name in ("name", "served", "storage", "subresources")}
        | {"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
        for version in document["spec"]["versions"]
    ]
    metadata = {"name": document["metadata"]["name"]}
    if approved := document["metadata"].get("annotations", {}).get("api-approved.kubernetes.io"):
        metadata["annotations"] = {"api-approved.kubernetes.io": approved}
    spec = {name: document["spec"][name] for name in ("group", "names", "scope")}
    return {"metadata": metadata, "spec": spec | {"versions": versions}}


def _workload(document: Document) -> Document:
    template = document["spec"]["template"]
    containers = [
        {name: each for name, each in container.items() if name in ("name", "image", "command")}
        for container in template["spec"]["containers"]
    ]
    spec = {name: each for name, each in document["spec"].items() if name in ("replicas", "selector")}
    labels = template["metadata"]["labels"]
    return {"spec": spec | {"template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}}}


def _config_map(document: Document) -> Document:
    return {"data": dict.fromkeys(document["data"], "")}


def _only(*names: str) -> Callable[[Document], Document]:
    return lambda document: {name: document[name] for name in names}


_SHORTENED: Final[dict[str, Callable[[Document], Document]]] = {
    "ConfigMap": _config_map,
    "ClusterRoleBinding": _only("roleRef", "subjects"),
    "CustomResourceDefinition": _definition,
    "DaemonSet": _workload,
    "Deployment": _workload,
    "PriorityClass": _only("value"),
    "RoleBinding": _only("roleRef", "subjects"),
    "Service": _only("spec"),
}


def main() -> None:
    helm, folder = map(Path, sys.argv[1:])
    _FOLDER.mkdir(exist_ok=True)
    for chart in folder.glob("v*"):
        _record(helm, chart, chart.name.removeprefix("v"))


if __name__ == "__main__":
    main()
