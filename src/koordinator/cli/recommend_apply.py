"""``koord recommend --apply``: pods are resized in place, or with ``--template`` their workload is changed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from koordinator.api.codec import convert
from koordinator.api.kinds import Kind
from koordinator.api.labels import QOS_CLASS
from koordinator.api.meta import Object
from koordinator.api.pod import ResourceRequirements
from koordinator.api.qos import qos_class_of_name
from koordinator.api.recommendation import ContainerChange
from koordinator.base.clock import SystemClock
from koordinator.cli.explain_cluster import Cluster
from koordinator.cli.explain_failure import UsageError
from koordinator.cli.explain_terminal import Terminal, output
from koordinator.cli.progress import run_with_client
from koordinator.cli.recommend import read_savings
from koordinator.cli.savings import Saving
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from koordinator.manager.recommender.in_place import resize_in_place, resources_after
from koordinator.manager.recommender.limit_ranges import LIMIT_RANGES, tightest
from koordinator.manager.recommender.resize_decision import Resize, obstacle_of, resize_of
from koordinator.model.container_sizes import PodShape, SizedContainer, decide_sizes, describe
from koordinator.model.recommendations import WorkloadKey, workload_of_target

NOT_ALL: Final = 1
_GROUPS: Final = ("containers", "initContainers")


class _Templated(Object):
    """A workload; its spec as a document."""

    spec: dict[str, Any] = {}


_TEMPLATED: Final = {
    (kind.group, kind.name): kind
    for kind in (
        Kind("apps", "v1", "deployments", "Deployment", _Templated),
        Kind("apps", "v1", "statefulsets", "StatefulSet", _Templated),
        Kind("apps", "v1", "daemonsets", "DaemonSet", _Templated),
        Kind("apps", "v1", "replicasets", "ReplicaSet", _Templated),
        Kind("batch", "v1", "cronjobs", "CronJob", _Templated),
        Kind("", "v1", "replicationcontrollers", "ReplicationController", _Templated),
    )
}
"""The kinds whose template can be changed."""


class _TemplateChange(NamedTuple):
    kind: Kind[_Templated]
    workload: WorkloadKey
    namespace: str
    changes: Mapping[str, ContainerChange]
    groups: Mapping[str, Sequence[str]]
    """``containers`` and ``initContainers`` -> the names of those that run as long as the pod does."""

    @property
    def patch(self) -> dict[str, Any]:
        """Of the spec of its pods."""
        found = {
            group: [
                {"name": name, "resources": resources_after(self.changes[name])}
                for name in names
                if name in self.changes
            ]
            for group, names in self.groups.items()
        }
        return {group: changed for group, changed in found.items() if changed}

    @property
    def name(self) -> str:
        return f"{self.workload.kind.lower()} {self.namespace}/{self.workload.name}"


class _Work(NamedTuple):
    """What one Recommendation asks for."""

    saving: Saving
    resizes: Sequence[Resize]
    template: _TemplateChange | None
    left: Sequence[str]
    """What stays as it is, and why: a sentence each."""


def run_apply(options: argparse.Namespace) -> int:
    """Say what is to be done, ask, and do it."""
    return run_with_client(
        options,
        lambda client, cluster: _apply(options, client, cluster),
        lambda: "interrupted; what was said to be done is done, and nothing else",
    )


async def _apply(options: argparse.Namespace, client: KubeClient, cluster: Cluster) -> int:
    if not (options.workload or options.namespace or options.all_namespaces or options.selector):
        raise UsageError("--apply needs a WORKLOAD, -n NAMESPACE, -l LABELS, or -A for all there are")
    found = await read_savings(options, client, cluster)
    for namespace in {each.recommended.source.metadata.namespace for each in found}:
        bounds = tightest((await client.list(LIMIT_RANGES, namespace)).items)
        for each in found:
            if each.recommended.source.metadata.namespace == namespace:
                each.bounds = bounds
    _, terminal = output()
    works = [await _work(options, client, each) for each in found]
    for work in works:
        for line in _lines(work):
            print(terminal.readable(line))
    count = sum(len(work.resizes) + (work.template is not None) for work in works)
    is_left = any(work.left for work in works)
    if not count:
        print("nothing is to be done")
        return NOT_ALL if is_left else 0
    if options.dry_run:
        print("nothing was done: --dry-run")
        return NOT_ALL if is_left else 0
    if not _agreed(options, cluster):
        print("nothing was done")
        return NOT_ALL
    done = 0
    for work in works:
        done += await _do(client, work, terminal)
    print(f"{done} of {count} done")
    return NOT_ALL if is_left or done < count else 0


def _agreed(options: argparse.Namespace, cluster: Cluster) -> bool:
    if options.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("nobody can be asked whether this is to be done: --yes says that it is")
    return input(f"Do this in {cluster.name}? [y/N] ").strip().lower() in ("y", "yes")


async def _work(options: argparse.Namespace, client: KubeClient, saving: Saving) -> _Work:
    if saving.unusable:
        return _Work(saving, (), None, (saving.unusable,))
    if options.template:
        template, reason = await _template(client, saving)
        return _Work(saving, (), template, (reason,) if reason else ())
    resizes, left = [], list[str]()
    for pod in sorted(saving.pods, key=lambda each: each.metadata.name):
        resize = resize_of(pod, saving.recommended, saving.sizing)
        if resize is None:
            continue
        reason = obstacle_of(resize)
        if not reason and resize.restarted and not options.restart:
            reason = f"--restart would restart {', '.join(resize.restarted)} for it"
        if reason:
            left.append(f"pod {pod.metadata.key} stays as it is: {reason}")
        else:
            resizes.append(resize)
    return _Work(saving, resizes, None, left)


async def _template(client: KubeClient, saving: Saving) -> tuple[_TemplateChange | None, str]:
    """The change of the workload, or why there is none; neither if it is as recommended."""
    source = saving.recommended.source
    workload, namespace = workload_of_target(source.spec.target), source.metadata.namespace
    kind = _TEMPLATED.get(workload[:2]) if workload is not None else None
    if workload is None or kind is None:
        kinds = ", ".join(sorted(name for _, name in _TEMPLATED))
        return None, f"the template of {saving.target} is not known here; those of these kinds are: {kinds}"
    found = await client.get(kind, workload.name, namespace)
    template = _template_in(kind, found.spec)
    labels = (template.get("metadata") or {}).get("labels") or {}
    changes = decide_sizes(
        list(_containers(template)),
        saving.recommended.containers,
        PodShape(qos_class_of_name(labels.get(QOS_CLASS, ""))),
        saving.sizing,
    )
    groups = {group: [each.get("name") or "" for each in _long_running(template, group)] for group in _GROUPS}
    return (_TemplateChange(kind, workload, namespace, changes, groups) if changes else None), ""


def _template_in(kind: Kind[_Templated], spec: Mapping[str, Any]) -> Mapping[str, Any]:
    job = spec.get("jobTemplate") if kind.name == "CronJob" else None
    found: Mapping[str, Any] = ((job or {}).get("spec") or {} if kind.name == "CronJob" else spec).get("template") or {}
    return found


def _containers(template: Mapping[str, Any]) -> Iterator[SizedContainer]:
    for each in (each for group in _GROUPS for each in _long_running(template, group)):
        resources = convert(each.get("resources") or {}, ResourceRequirements)
        yield SizedContainer(each.get("name") or "", resources.requests, resources.limits)


def _long_running(template: Mapping[str, Any], group: str) -> Sequence[Mapping[str, Any]]:
    found = (template.get("spec") or {}).get(group) or ()
    return [each for each in found if group == "containers" or each.get("restartPolicy") == "Always"]


def _lines(work: _Work) -> Iterator[str]:
    for each in work.resizes:
        restarted = f" (restarts {', '.join(each.restarted)})" if each.restarted else ""
        yield f"pod {each.pod.metadata.key}: {describe(each.changes)}{restarted}"
    if work.template is not None:
        yield f"{work.template.name}: its template: {describe(work.template.changes)}"
    yield from work.left


async def _do(client: KubeClient, work: _Work, terminal: Terminal) -> int:
    """How much of it was done. What is refused is said, and does not keep anything else from being done."""
    done, name = 0, work.saving.recommended.source.metadata.name
    if (template := work.template) is not None:
        spec: dict[str, Any] = {"template": {"spec": template.patch}}
        patch = {"spec": {"jobTemplate": {"spec": spec}} if template.kind.name == "CronJob" else spec}
        try:
            await client.patch(template.kind, template.workload.name, patch, PatchType.STRATEGIC, template.namespace)
            done += 1
        except ApiStatusError as error:
            print(terminal.readable(f"{template.name} is not changed: {error}"), file=sys.stderr)
    for resize in work.resizes:
        try:
            await resize_in_place(client, resize, name, SystemClock().now())
            done += 1
        except ApiStatusError as error:
            print(terminal.readable(f"pod {resize.pod.metadata.key} is not resized: {error}"), file=sys.stderr)
    return done
