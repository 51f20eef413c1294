"""What people write for a program to start with: component configurations, kubeconfigs, files of options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import yaml

from koordinator.base.strict_yaml import load_documents
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.loading import load_configuration
from koordinator.descheduler.main import BUILT_IN
from koordinator.device_daemon.options import parse_options
from koordinator.kube.kubeconfig import load_explicit
from koordinator.scheduler.configuration import parse_configuration
from tests.fuzz.descheduler_program import DOCUMENT
from tests.fuzz.readings import Reading
from tests.real_world.garbage import Garbage

_SCHEDULER: Final = (Path(__file__).parents[1] / "scheduler/configuration/chart_profile.yaml").read_text()
_KUBECONFIG: Final = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: k, cluster: {server: "https://localhost:6443", certificate-authority-data: YQ==}}]
contexts: [{name: c, context: {cluster: k, user: u, namespace: default}}]
users: [{name: u, user: {token: t, exec: {apiVersion: client.authentication.k8s.io/v1, command: x, env: []}}}]
"""


def configurations(folder: Path) -> Iterator[tuple[str, Reading]]:
    catalogue = Catalogue(BUILT_IN, lambda: ())
    for name, sound, read in (
        (
            "configuration of the descheduler",
            yaml.safe_dump(DOCUMENT),
            partial(load_configuration, catalogue=catalogue),
        ),
        ("options of the device daemon", "version: v1\nflags: {kdd: {oneshot: false, sleepInterval: 60s}}\n", _options),
        ("kubeconfig", _KUBECONFIG, load_explicit),
    ):
        yield name, Reading(_yaml(sound), partial(_from_file, folder / "file.yaml", read))
    yield (
        "configuration of the scheduler",
        Reading(_yaml(_SCHEDULER), lambda content: parse_configuration(_text(content), "f")),
    )
    yield "any YAML", Reading(_yaml("a: {b: [1, 2]}\n"), lambda content: load_documents(_text(content), "f"))


def _yaml(sound: str) -> Callable[[Random, Garbage], bytes]:
    return lambda _, garbage: garbage.yaml(sound)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _options(path: Path) -> object:
    return parse_options([f"-config-file={path}"], {})


def _from_file(path: Path, read: Callable[[Path], object], content: bytes) -> object:
    path.write_bytes(content)
    return read(path)
