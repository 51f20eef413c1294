"""What the recorded renderings have in them, by what a test asks for."""

from __future__ import annotations

from koordinator.manager.command_line import parse_options as manager_options
from koordinator.manager.options import Options as ManagerOptions
from tests.chart.renderings import Document, recorded

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
    (container,) = pod_spec(case, PROGRAMS[name], name)["containers"]
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
