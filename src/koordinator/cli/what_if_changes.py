"""What the commands of ``koord what-if`` change, and their run: the part that needs the scheduler, which takes a second
to load. A typing mistake is said before."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from koordinator.base.errors import ConfigurationError
from koordinator.base.yaml_lines import naming_lines
from koordinator.cli.explain_failure import NotFoundError
from koordinator.cli.what_if_input import (
    Source,
    configuration_of_file,
    read_objects,
    read_text,
    scheduler_configuration,
)
from koordinator.scheduler.options import parse_options
from koordinator.simulate.change import Change, ChangeError
from koordinator.simulate.change_file import read_changes
from koordinator.simulate.colocation import colocation_of
from koordinator.simulate.configurations import configuration_of
from koordinator.simulate.fit import Fit, is_fitted
from koordinator.simulate.node_changes import AddNodes, Drain, RemoveNodes
from koordinator.simulate.object_changes import Apply, Delete, Scale
from koordinator.simulate.reconfiguration import Reconfigure, replay
from koordinator.simulate.simulated_cluster import SimulationOptions
from koordinator.simulate.what_if import what_if
from koordinator.simulate.workloads import parse_workload

Make = Callable[[argparse.Namespace, str], Sequence[Change]]
"""From the command line and the namespace to the changes."""


def _apply(options: argparse.Namespace, namespace: str) -> Sequence[Change]:
    return [Apply(read_objects(options.files), namespace, options.replicas)]


def _fit(options: argparse.Namespace, namespace: str) -> Sequence[Change]:
    """The pod or workload of the file, after what else the file has, such as its namespace."""
    objects = read_objects(options.files)
    models = [each for each in objects if is_fitted(each)]
    if len(models) != 1:
        found = f"{len(models)} of {len(objects)} objects"
        raise ConfigurationError("-f", found, "one pod, or one workload with a template, is needed")
    others = [each for each in objects if each is not models[0]]
    before = [Apply(others, namespace)] if others else []
    return [*before, Fit(models[0], namespace, options.at_most, options.with_preemption)]


def _scale(options: argparse.Namespace, namespace: str) -> Sequence[Change]:
    return [Scale(parse_workload(options.workload, namespace), options.replicas)]


def _delete(options: argparse.Namespace, namespace: str) -> Sequence[Change]:
    kind, slash, name = options.object.partition("/")
    if not (kind and slash and name):
        raise ConfigurationError("delete", options.object, "KIND/NAME is needed")
    return [Delete(kind, name, namespace)]


def _drain(options: argparse.Namespace, namespace: str) -> Sequence[Change]:
    return [Drain(options.nodes, force=options.force)]


def _add_node(options: argparse.Namespace, namespace: str) -> Sequence[Change]:
    return [AddNodes(options.like, options.count, tuple(options.label))]


def _remove_node(options: argparse.Namespace, namespace: str) -> Sequence[Change]:
    return [RemoveNodes(options.nodes)]


def _config(options: argparse.Namespace, namespace: str) -> Sequence[Change]:
    return [Reconfigure(configuration_of_file(options.file), str(options.file))]


def _colocation(options: argparse.Namespace, namespace: str) -> Sequence[Change]:
    return [colocation_of(read_objects(options.files), "-f")]


def _changes(options: argparse.Namespace, namespace: str) -> Sequence[Change]:
    text = read_text(str(options.file))
    with naming_lines(text, str(options.file)):
        return read_changes(text, str(options.file), options.file.parent, namespace, read_objects)


CHANGES: Final[Mapping[str, Make]] = {
    "apply": _apply,
    "fit": _fit,
    "scale": _scale,
    "delete": _delete,
    "drain": _drain,
    "add-node": _add_node,
    "remove-node": _remove_node,
    "config": _config,
    "colocation": _colocation,
    "changes": _changes,
}
"""By the command."""


async def simulate(options: argparse.Namespace, source: Source) -> dict[str, Any]:
    """The outcome. Raises what reading, changing and simulating raise."""
    # Before the snapshot is taken: a typing mistake shows at once.
    parse_options(options.scheduler_flag)
    configuration = scheduler_configuration(options.scheduler_config)
    simulation = SimulationOptions(options.look_ahead, options.seed, tuple(options.scheduler_flag))
    try:
        changes = CHANGES[options.change](options, source.namespace)
        snapshot = await source.snapshot()
        document = await what_if(snapshot, changes, configuration, simulation)
    except ChangeError as error:
        raise NotFoundError(str(error)) from error
    if getattr(options, "replay", False):
        now = configuration or configuration_of(snapshot)[0]
        document["replay"] = await replay(snapshot, now, configuration_of_file(options.file), simulation)
    return document
