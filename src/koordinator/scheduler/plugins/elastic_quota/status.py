"""The controller that writes the counted amounts to the quotas, and creates the built-in quotas if they are missing.

It writes only values that have changed, with one patch for each quota.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from koordinator.api import labels as label_keys
from koordinator.api.annotations import QUOTA_RUNTIME
from koordinator.api.codec import DecodeError
from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.kinds import ELASTIC_QUOTAS
from koordinator.base.errors import KoordinatorError
from koordinator.model.quota_tree.annotation_values import read_amounts, write_amounts
from koordinator.scheduler.engine.binding_points import ControllerWriter, ObjectPatch
from koordinator.scheduler.engine.framework_hooks import QuotaHookPlugin
from koordinator.scheduler.plugins.elastic_quota.accounts import Accounts
from koordinator.scheduler.plugins.elastic_quota.amounts import from_wire, to_wire, without_zeros
from koordinator.scheduler.plugins.elastic_quota.summary import QuotaSummary, published, summarize

_PREFIX: Final = QUOTA_RUNTIME.rpartition("/")[0]
_PERIOD: Final = 1.0
Warn = Callable[[ElasticQuota, str], None]
"""Records a warning event on a quota."""


class StatusController:
    """Patches quotas every second. ``namespace``: where the built-in quotas are created. ``publishes_runtime``: whether
    the runtime is written, since it is what limits the quotas."""

    name = "ElasticQuotaController"

    def __init__(
        self,
        accounts: Accounts,
        writer: ControllerWriter,
        namespace: str,
        warn: Warn,
        *,
        publishes_runtime: bool = True,
        hooks: Sequence[QuotaHookPlugin] = (),
    ) -> None:
        self._accounts = accounts
        self._writer = writer
        self._namespace = namespace
        self._publishes_runtime = publishes_runtime
        self._warn = warn
        self._hooks = hooks
        self._warned: dict[str, tuple[str, ...]] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        await self._create_built_in()
        while True:
            self._report_faults()
            self._writer.patch_each(ELASTIC_QUOTAS, self._changes())
            await self._writer.sleep(_PERIOD)

    async def _create_built_in(self) -> None:
        """Create the root, the system and the default quota for users to see; scheduling works the same without
        them."""
        settings = self._accounts.settings
        for name, maximum in (
            (ROOT_QUOTA, None),
            (SYSTEM_QUOTA, settings.system_max),
            (DEFAULT_QUOTA, settings.default_max),
        ):
            if self._accounts.object(name) is None:
                body = _built_in(name, self._namespace, maximum)
                try:
                    await self._writer.create(ELASTIC_QUOTAS, body, self._namespace)
                except KoordinatorError as error:
                    self._writer.warn(f"quota {name} could not be created: {error}")

    def _changes(self) -> Iterator[ObjectPatch]:
        for quota in list(self._accounts.objects()):
            if self._accounts.object(quota.metadata.name) is quota:
                summary = summarize(self._accounts, quota.metadata.name)
                patch = self._patch(quota, summary) if summary is not None else {}
                if patch:
                    yield ObjectPatch(quota.metadata.name, quota.metadata.namespace, patch)

    def _patch(self, quota: ElasticQuota, summary: QuotaSummary) -> Mapping[str, Any]:
        """The merged patch of the plugin and its hooks; the plugin's amounts override the hooks' values."""
        own = patch_of(quota, summary if self._publishes_runtime else replace(summary, runtime={}))
        found: dict[str, Any] = {}
        for patch in (*(hook.quota_patch(quota) for hook in self._hooks), own or {}):
            merge(found, patch)
        return found

    def _report_faults(self) -> None:
        """Report the errors of each quota, again only if they change or the program restarts."""
        quotas = {quota.metadata.uid: quota for quota in self._accounts.objects()}
        for uid in self._warned.keys() - quotas:
            del self._warned[uid]
        for uid, quota in quotas.items():
            faults = self._accounts.faults(quota)
            if faults != self._warned.get(uid, ()):
                for fault in faults:
                    self._warn(quota, fault)
                self._warned[uid] = faults


def _built_in(name: str, namespace: str, maximum: Mapping[str, int] | None) -> dict[str, Any]:
    root = {
        label_keys.QUOTA_IS_PARENT: "true",
        label_keys.QUOTA_ALLOW_LENT_RESOURCE: "false",
        label_keys.QUOTA_PARENT: "",
    }
    spec = {"max": {key: str(amount) for key, amount in to_wire(maximum).items()}} if maximum is not None else {}
    labels = root if maximum is None else {}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
    }


def patch_of(quota: ElasticQuota, summary: QuotaSummary) -> dict[str, Any] | None:
    """The merge patch from the object's amounts to the summary's; None if they are equal. An amount of 0 equals a
    missing one, and an annotation that cannot be decoded counts as absent."""
    annotations: dict[str, str] = {}
    for key, amounts in published(summary).items():
        if _read(quota.metadata.annotations.get(f"{_PREFIX}/{key}", "")) != without_zeros(amounts):
            annotations[f"{_PREFIX}/{key}"] = write_amounts(to_wire(amounts))
    patch: dict[str, Any] = {"metadata": {"annotations": annotations}} if annotations else {}
    if without_zeros(from_wire(quota.status.used)) != without_zeros(summary.used):
        gone = {name: None for name in quota.status.used if name not in summary.used}
        used = {name: str(amount) for name, amount in to_wire(summary.used).items()}
        patch["status"] = {"used": {**gone, **used}}
    return patch or None


def merge(into: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """Merge a JSON merge patch into another in place; values of ``patch`` override those of ``into``."""
    for key, value in patch.items():
        if isinstance(value, Mapping):
            known = into.get(key)
            into[key] = dict(known) if isinstance(known, Mapping) else {}
            merge(into[key], value)
        else:
            into[key] = value


def _read(text: str) -> Mapping[str, int] | None:
    try:
        return without_zeros(from_wire(read_amounts(text)))
    except DecodeError:
        return None
