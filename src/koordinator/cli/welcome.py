"""What ``koord up`` prints once the cluster is up: commands that work as they are printed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from koordinator.cli.local_cluster.programs import LocalClusterOptions
from koordinator.cli.own_command import data_option

_WEB = 'kubectl run web --image=nginx --overrides=\'{"spec":{"priorityClassName":"koord-prod"}}\''


def welcome(
    options: LocalClusterOptions,
    names: Collection[str],
    *,
    koord: str,
    has_kubectl: bool,
    taken_pod_names: Collection[str],
    unhealthy: Sequence[str],
) -> str:
    """``names``: the programs that were started. ``koord``: the words that start this program."""
    health = f", but not healthy yet: {', '.join(unhealthy)}" if unhealthy else ""
    lines = ["", f"The cluster is up ({', '.join(names)}){health}.", ""]
    lines += [f"  {command}" for command in _commands(options, names, koord, taken_pod_names)]
    lines.append("")
    if not has_kubectl:
        lines.append("kubectl is not on the PATH here; https://kubernetes.io/docs/tasks/tools says how to get it.")
    if hint := path_hint(koord):
        lines.append(hint)
    logs = shlex.quote(str(options.data / "logs"))
    kept = "; the state is kept for the next start" if "apiserver" in names else ""
    lines.append(f"Logs are in {logs}. Ctrl-C stops everything{kept}.")
    return "\n".join(lines)


def path_hint(koord: str) -> str:
    """How to put ``koord`` on the PATH, where it is not; else nothing."""
    program = shlex.split(koord)
    if len(program) != 1 or os.sep not in program[0]:
        return ""
    folder = shlex.quote(str(Path(program[0]).absolute().parent))
    return f"To have koord on the PATH: export PATH={folder}:$PATH"


def _commands(
    options: LocalClusterOptions, names: Collection[str], koord: str, taken_pod_names: Collection[str]
) -> list[str]:
    commands = [f"export KUBECONFIG={shlex.quote(str(options.kubeconfig))}"]
    data = data_option(options.data)
    if "nodes" in names:
        commands.append("kubectl get nodes")
    if {"apiserver", "nodes", "scheduler"} <= set(names):
        # On a cluster that was there before, neither its priority classes nor its pods are ours to assume.
        if "web" not in taken_pod_names:
            commands.append(_WEB)
        commands += ["kubectl get pods -o wide", f"{koord} explain pod web{data}"]
    elif "apiserver" in names:
        commands.append("kubectl get namespaces")
    commands.append(f"{koord} status{data}")
    return commands
