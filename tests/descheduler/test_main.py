"""The program before it reaches a cluster: broken files and command lines, exit status and messages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.api.component_configuration import ClientConnection
from koordinator.api.struct_fields import struct_fields
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.document import (
    KIND,
    VERSION,
    DeschedulerConfiguration,
    DeschedulerLeaderElection,
)
from koordinator.descheduler.configuration.loading import Configuration, resolve
from koordinator.descheduler.main import BUILT_IN, main
from koordinator.descheduler.plugins.low_node_load.arguments import AnomalyCondition, NodePool
from tests.descheduler.clusters import (
    PLUGIN_ARGS,
    evicted,
    make_handle,
    make_metric,
    make_node,
    make_pod,
    make_snapshot,
)

HEAD: Final = f"apiVersion: {VERSION}\nkind: {KIND}\n"
ARGS: Final = "profiles: [{name: a, pluginConfig: [{name: MigrationController, args: {%s}}]}]"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "one DeschedulerConfiguration"),
        ("[]", KIND),
        ("apiVersion: v1\nkind: Pod", "apiVersion"),
        (f"{HEAD}dryRun: false\ndryRun: true", "dryRun"),
        (f"{HEAD}dryrun: true", "dryrun"),
        (f"{HEAD}dryRun: 7", "dryRun"),
        (f"{HEAD}deschedulingInterval: 7", "deschedulingInterval"),
        (f"{HEAD}profiles: {{}}", "profiles"),
        (f"{HEAD}profiles: [7]", "profiles[0]"),
        (f"{HEAD}profiles: [{{nodeSelector: {{matchLabels: {{a: 7}}}}}}]", "profiles[0].nodeSelector.matchLabels"),
        (
            f"{HEAD}profiles: [{{plugins: {{evict: {{enabled: [DefaultEvictor]}}}}}}]",
            "profiles[0].plugins.evict.enabled",
        ),
        (f"{HEAD}profiles: [{{pluginConfig: [{{args: {{}}}}]}}]", "profiles[0].pluginConfig[0]"),
        (HEAD + ARGS % "evictQPS: fast", "profiles[0].pluginConfig[0].args.evictQPS"),
        (HEAD + ARGS % "maxMigratingPerNode: -1", "profiles[0].pluginConfig[0].args.maxMigratingPerNode"),
        (HEAD + ARGS % "skipEvictionGates: [All]", "profiles[0].pluginConfig[0].args.skipEvictionGates[0]"),
        (HEAD + ARGS % "coolDown: forever", "profiles[0].pluginConfig[0].args.coolDown"),
    ],
)
def test_a_file_that_is_broken_ends_the_program_with_one_line_that_names_the_field(
    text: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "descheduler.yaml"
    path.write_text(text)
    assert main([f"--config={path}", "--v=0"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"koord-descheduler: {path}")
    assert field in line


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--config={tmp_path / 'absent'}"]) == 1
    assert str(tmp_path / "absent") in capsys.readouterr().err


def test_a_file_that_is_no_yaml_is_named_with_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "descheduler.yaml"
    path.write_text(f"{HEAD}a: [")
    assert main([f"--config={path}"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"koord-descheduler: {path}")
    assert "line 3" in error


def test_a_file_that_is_no_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "binary"
    path.write_bytes(bytes(range(256)))
    assert main([f"--config={path}"]) == 1
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--port=70000", "--leader-elect=perhaps", "--address", "--no-such-flag=1", "x"])
def test_a_flag_that_is_wrong_ends_the_program_with_a_line_that_names_it(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([flag])
    assert ended.value.code == 2
    line = capsys.readouterr().err.splitlines()[0]
    assert flag.partition("=")[0].lstrip("-") in line


ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    0,
    2**63,
    -(2**70),
    1e400,
    float("nan"),
    "",
    "x",
    "-1s",
    "9" * 400,
    "\udcff",
    [],
    [None],
    ["x"],
    [{}],
    {},
    {"x": None},
    {"x": "x"},
    {"x": -1},
    {"cpu": 1e308},
    {"matchExpressions": [{"key": "", "operator": "", "values": None}]},
)


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field of the file and of the arguments of every plugin, with each odd value."""
    head = {"apiVersion": VERSION, "kind": KIND}
    for field, value in odd(DeschedulerConfiguration):
        yield field, {**head, field: value}
    for stanza, struct in (("leaderElection", DeschedulerLeaderElection), ("clientConnection", ClientConnection)):
        for field, value in odd(struct):
            yield field, {**head, stanza: {field: value}}
    for name, plugin in BUILT_IN.items():
        assert plugin.args_type is not None
        for field, value in odd(plugin.args_type):
            yield field, {**head, "profiles": [_profile(name, {field: value})]}
    for field, value in odd(NodePool):
        yield field, {**head, "profiles": [_profile("LowNodeLoad", {"nodePools": [{field: value}]})]}
    for field, value in odd(AnomalyCondition):
        yield field, {**head, "profiles": [_profile("LowNodeLoad", {"anomalyCondition": {field: value}})]}


def odd(struct: Any) -> Iterator[tuple[str, Any]]:
    return product((field.wire_name for field in struct_fields(struct)), ODD)


def _profile(name: str, args: dict[str, Any]) -> dict[str, Any]:
    config = {"name": name, "args": {**PLUGIN_ARGS.get(name, {}), **args}}
    return {"pluginConfig": [config], "plugins": _points(name)}


def _points(name: str) -> dict[str, Any]:
    point = next((point for point in ("deschedule", "balance") if hasattr(BUILT_IN[name], point)), "")
    return {point: {"enabled": [{"name": name}]}} if point else {}


Outcome = Configuration | ConfigurationError


@pytest.fixture(scope="module")
def outcomes() -> list[tuple[str, Outcome]]:
    """What becomes of each document, with the field that is odd; another error than ConfigurationError is raised."""
    catalogue = Catalogue(BUILT_IN, lambda: ())

    def outcome(document: dict[str, Any]) -> Outcome:
        try:
            return resolve(document, "", catalogue)
        except ConfigurationError as error:
            return error

    return [(field, outcome(document)) for field, document in documents()]


def test_a_value_of_any_shape_is_taken_or_refused_by_its_field(outcomes: list[tuple[str, Outcome]]) -> None:
    refused = [(field, error) for field, error in outcomes if isinstance(error, ConfigurationError)]
    assert 0 < len(refused) < len(outcomes)
    for field, error in refused:
        assert field in str(error)


def test_what_is_taken_ends_no_cycle(outcomes: list[tuple[str, Outcome]]) -> None:
    """Plugins are made, and queried about a small cluster."""
    pods = [make_pod(f"web-{number}", "hot", requests={"cpu": "500m", "memory": "1Gi"}) for number in range(5)]
    metrics = [make_metric("hot", {pod.metadata.name: "700m" for pod in pods}), make_metric("cool", {})]
    snapshot = make_snapshot([make_node("hot"), make_node("cool")], pods, metrics)
    handle = make_handle()
    for _, taken in outcomes:
        for profile in taken.profiles if isinstance(taken, Configuration) else ():
            for point in ("deschedule", "balance"):
                for name in profile.points[point]:
                    try:
                        made: Any = profile.plugins[name](profile.arguments[name], handle)
                    except ConfigurationError:
                        continue
                    evicted(getattr(made, point)(snapshot))
