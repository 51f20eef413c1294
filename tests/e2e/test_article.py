"""The introductory article's manifests, word for word: its priority classes, its pod, its scheduler ConfigMap."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from koordinator.api.kinds import CONFIG_MAPS, PODS, PRIORITY_CLASSES
from koordinator.api.labels import QOS_CLASS
from koordinator.api.pod import Pod
from tests.e2e.running import eventually, koord_up
from tests.yaml_documents import yaml_documents

ARTICLE = Path(__file__).parent / "article"
_PROGRAMS = "--only=apiserver,nodes,manager,scheduler"
QOS_CLASSES = ("LSE", "LSR", "LS", "BE", "SYSTEM")


def documents(name: str) -> list[dict[str, Any]]:
    return yaml_documents((ARTICLE / name).read_text())


def allowed(spec: dict[str, Any], qos: str) -> dict[str, Any]:
    """The pod in a form that koord-manager lets a pod of this class have: those that keep CPUs to themselves are of
    production and request whole CPUs."""
    if qos not in ("LSE", "LSR"):
        return spec
    containers = [{**container, "resources": {"requests": {"cpu": "1"}}} for container in spec["containers"]]
    return {**spec, "containers": containers, "priorityClassName": "koord-prod"}


def test_the_articles_manifests_work(tmp_path: Path) -> None:
    async def scenario() -> tuple[Pod, list[Pod]]:
        configuration = ARTICLE / "load-aware-scheduling.yaml"
        async with koord_up(tmp_path, _PROGRAMS, "--nodes=3", f"--scheduler-config={configuration}") as up:
            client = await up.client()
            try:
                for document in documents("priority-classes.yaml"):
                    # A local cluster has classes of these names already.
                    await client.delete(PRIORITY_CLASSES, document["metadata"]["name"])
                    await client.create(PRIORITY_CLASSES, document)
                for document in documents("load-aware-scheduling.yaml"):
                    await client.create(CONFIG_MAPS, document, "default")
                (pod,) = documents("pod.yaml")
                pod["spec"]["schedulerName"] = "koord-scheduler"
                await client.create(PODS, pod, "default")
                placed = await eventually(client, "nginx", lambda each: bool(each.spec.node_name), "bound")
                labelled = []
                for qos in QOS_CLASSES:
                    name = f"nginx-{qos.lower()}"
                    metadata = {"name": name, "labels": {QOS_CLASS: qos}}
                    await client.create(
                        PODS, {**pod, "metadata": metadata, "spec": allowed(pod["spec"], qos)}, "default"
                    )
                    labelled.append(await eventually(client, name, lambda each: bool(each.spec.node_name), "bound"))
                return placed, labelled
            finally:
                await client.close()

    placed, labelled = asyncio.run(scenario())
    assert placed.spec.priority == 5000
    assert [pod.metadata.labels[QOS_CLASS] for pod in labelled] == list(QOS_CLASSES)
