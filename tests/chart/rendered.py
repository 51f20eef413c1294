"""What the recorded renderings have in them, by what a test asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from koordinator.manager.command_line import parse_options as manager_options
from koordinator.manager.options import Options as ManagerOptions
from tests.chart.renderings import CHART, Document, recorded
from tests.yaml_documents import yaml_documents

ELSEWHERE = "elsewhere"


def objects(case: str) -> dict[tuple[str, str], Document]:
    return {(each["kind"], each["metadata"]["name"]): each for each in recorded(case)}


def pod_spec(case: str, kind: str, name: str) -> Document:
    spec: Document = objects(case)[kind, name]["spec"]["template"]["spec"]
    return spec


def arguments(case: str, kind: str, name: str) -> list[str]:
    (container,) = pod_spec(case, kind, name)["containers"]
    return [argument.replace("$(POD_NAMESPACE)", ELSEWHERE) for argument in container["args"]]


def environment(case: str, kind: str, name: str) -> dict[str, str]:
    (container,) = pod_spec(case, kind, name)["containers"]
    return {"POD_NAMESPACE": ELSEWHERE} | {each["name"]: each["value"] for each in container["env"] if "value" in each}


def ports(case: str, name: str) -> dict[str, int]:
    (container,) = pod_spec(case, PROGRAMS.get(name, "Deployment"), name)["containers"]
    return {each["name"]: each["containerPort"] for each in container["ports"]}


def configuration_text(case: str, name: str) -> str:
    (text,) = objects(case)["ConfigMap", name]["data"].values()
    return str(text)


def manager(case: str) -> ManagerOptions:
    return manager_options(
        arguments(case, "Deployment", "koord-manager"), environment(case, "Deployment", "koord-manager")
    )


PROGRAMS = {
    "koord-manager": "Deployment",
    "koord-scheduler": "Deployment",
    "koord-descheduler": "Deployment",
    "koordlet": "DaemonSet",
    "koord-device-daemon": "DaemonSet",
}

NOT_RESTRICTED = ("koordlet", "koord-device-daemon")
"""The programs that work on nodes, with rights that the restricted Pod Security Standard does not permit."""


def configured() -> list[Document]:
    """The workloads of config/."""
    folders = (CHART.parents[1] / "config" / each for each in ("deployments", "daemon-sets"))
    paths = [path for folder in folders for path in folder.iterdir()]
    return [document for path in paths for document in yaml_documents(path.read_text())]


def pod_specs(documents: Iterable[Document]) -> Iterator[tuple[str, Document]]:
    """Name and spec of each pod, and of each template of one."""
    for each in documents:
        name = each["metadata"]["name"]
        if each["kind"] == "Pod":
            yield name, each["spec"]
        elif each["kind"] in ("Deployment", "DaemonSet"):
            yield name, each["spec"]["template"]["spec"]
