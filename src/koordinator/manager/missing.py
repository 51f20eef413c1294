"""Error messages for what koord-manager needs and the cluster lacks, each with the command that installs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from koordinator.api.installation import NAMESPACE
from koordinator.base.errors import KoordinatorError


class NotInstalledError(KoordinatorError):
    """An object or CRD that the cluster lacks; the message names it and the command that installs it."""


def missing_namespace(namespace: str, holds: str) -> str:
    """The message for a missing namespace; ``holds`` is what the manager would create there."""
    return f"namespace {namespace}, where {holds} is kept, does not exist: kubectl create namespace {namespace}"


class WebhookConfigurationName(NamedTuple):
    """The configuration's ``name`` from the environment ``variable``, and the ``default`` that our manifests
    install."""

    kind: str
    name: str
    variable: str
    default: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def missing_webhook_configurations(missing: Sequence[WebhookConfigurationName], namespace: str) -> str:
    what = f"{' and '.join(map(str, missing))} {'does' if len(missing) == 1 else 'do'} not exist"
    renamed = [each for each in missing if each.name != each.default]
    if renamed:
        correct = ", ".join(f"{each.variable} (default {each.default})" for each in renamed)
        return f"{what}: install what is named so, or correct {correct}"
    return f"{what}: {install_command('webhook', namespace)}"


def missing_slo_configuration(name: str, default: str, namespace: str) -> str:
    what = f"ConfigMap {namespace}/{name} does not exist, so that no node lends anything"
    if name != default:
        return f"{what}: create it, or correct --slo-config-name (default {default})"
    return f"{what}: {install_command('config-maps', namespace)}"


def install_command(part: str, namespace: str) -> str:
    """The command that installs one part of our manifests."""
    elsewhere = "" if namespace == NAMESPACE else f" --namespace {namespace}"
    return f"koord manifests --only {part}{elsewhere} | kubectl apply -f -"
