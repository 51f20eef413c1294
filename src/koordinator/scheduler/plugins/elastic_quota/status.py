"""The amounts of quotas, as the HTTP API and the metrics show them, and the controller that writes them to the quotas,
and creates the built-in quotas if they are missing.

It writes only values that have changed, with one patch for each quota.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api import labels as label_keys
from koordinator.api.annotations import QUOTA_RUNTIME, QUOTA_UNSCHEDULABLE_RESOURCE
from koordinator.api.codec import DecodeError
from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.kinds import ELASTIC_QUOTAS
from koordinator.base.errors import KoordinatorError
from koordinator.base.instruments import Scraped
from koordinator.model.quota_tree.annotation_values import read_amounts, write_amounts
from koordinator.scheduler.engine.binding_points import ControllerWriter, ObjectPatch
from koordinator.scheduler.engine.framework_hooks import QuotaHookPlugin
from koordinator.scheduler.plugins.elastic_quota.accounts import Accounts, CountedPod
from koordinator.scheduler.plugins.elastic_quota.amounts import NOTHING, from_wire, to_wire, without_zeros
from koordinator.scheduler.plugins.elastic_quota.forest import Forest, QuotaNode

_NO_SHARE: Final = (ROOT_QUOTA, DEFAULT_QUOTA, SYSTEM_QUOTA)
"""Built-in quotas take no part in sharing, and so have no runtime."""
_GAUGES: Final = ("used", "min", "max", "sharedWeight")
"""The amounts that are exported as metrics beside those that are written to annotations."""
_PUBLISHED: Final[Mapping[str, str]] = {
    "runtime": "runtime",
    "request": "request",
    "child-request": "childRequest",
    "guaranteed": "guaranteed",
    "allocated": "allocated",
    "non-preemptible-request": "nonPreemptibleRequest",
    "non-preemptible-used": "nonPreemptibleUsed",
}
"""The amounts that are written to annotations: the part of the annotation's name after the slash -> the name here."""
QuotaAmounts = Mapping[str, Mapping[str, int]]
"""By the names of the original's API, then by resource."""


def amounts_of(forest: Forest, node: QuotaNode) -> QuotaAmounts:
    """The current amounts of a quota. ``autoScaleMin`` is the min in effect: scaled down if the parent has less than
    the mins of its children together."""
    specification, total, own, shares = node.specification, node.total, node.own, node.name not in _NO_SHARE
    return {
        "max": specification.max,
        "min": specification.min,
        "autoScaleMin": forest.floor(node) if shares else NOTHING,
        "used": total.used,
        "nonPreemptibleUsed": total.non_preemptible_used,
        "request": node.request,
        "nonPreemptibleRequest": total.non_preemptible_request,
        "sharedWeight": specification.weight,
        "runtime": forest.runtime(node) if shares else NOTHING,
        "childRequest": node.child_request,
        "allocated": forest.allocated(node),
        "guaranteed": forest.guaranteed(node),
        "selfUsed": own.used,
        "selfNonPreemptibleUsed": own.non_preemptible_used,
        "selfRequest": own.request,
        "selfNonPreemptibleRequest": own.non_preemptible_request,
    }


def published(amounts: QuotaAmounts) -> dict[str, Mapping[str, int]]:
    """Those that are written to the quota's annotations, by the part of the annotation's name after the slash."""
    return {key: amounts[name] for key, name in _PUBLISHED.items()}


def in_effect(accounts: Accounts) -> Iterator[tuple[ElasticQuota, QuotaNode, QuotaAmounts]]:
    """The quota objects in effect, each with its node and its amounts."""
    for quota in list(accounts.objects()):
        name, forest = quota.metadata.name, accounts.forest
        node = forest.roots[""] if name == ROOT_QUOTA else forest.nodes.get(name)
        if node is not None and accounts.object(name) is quota:
            yield quota, node, amounts_of(forest, node)


def document_of(forest: Forest, node: QuotaNode, pods: Iterable[CountedPod]) -> dict[str, Any]:
    """The quota as a JSON document, as in the original's API. ``pods``: the pods to show, of those that count against
    the quota itself."""
    specification = node.specification
    shown = {each.key: {"isAssigned": each.is_assigned, "resource": to_wire(each.kind.request)} for each in pods}
    return {
        "name": node.name,
        "parentName": specification.parent,
        "isParent": specification.is_parent,
        "runtimeVersion": node.version,
        "allowLentResource": forest.lends(node),
        "tree": forest.tree_of(specification),
        **{key: to_wire(amounts) for key, amounts in amounts_of(forest, node).items()},
        **({"podCache": shown} if shown else {}),
    }


_NAME: Final = "scheduler_elastic_quota_status"
_LABELS: Final = ("name", "resource", "tree", "is_parent", "parent", "field")


def quota_gauges(accounts: Callable[[], Accounts]) -> Scraped:
    """The amounts of all quotas by field and resource; CPU in milli-CPUs."""
    return Scraped(_NAME, "[ALPHA] ElasticQuota current status", _LABELS, lambda: _series(accounts()))


def _series(accounts: Accounts) -> Iterator[tuple[Sequence[str], float]]:
    for quota, node, amounts in in_effect(accounts):
        specification = node.specification
        fields = {**published(amounts), **{name: amounts[name] for name in _GAUGES}}
        if text := quota.metadata.annotations.get(QUOTA_UNSCHEDULABLE_RESOURCE):
            fields["unschedulable-resource"] = _read(text) or NOTHING
        is_parent, tree = "true" if specification.is_parent else "false", accounts.forest.tree_of(specification)
        for name, by_resource in fields.items():
            for resource, amount in by_resource.items():
                yield (node.name, resource, tree, is_parent, specification.parent, name), amount


_PREFIX: Final = QUOTA_RUNTIME.rpartition("/")[0]
_PERIOD: Final = 1.0
Warn = Callable[[ElasticQuota, str], None]
"""Records a warning event on a quota."""


@dataclass(eq=False)
class StatusController:
    """Patches quotas every second."""

    accounts: Accounts
    writer: ControllerWriter
    namespace: str
    """Where the built-in quotas are created."""
    warn: Warn
    publishes_runtime: bool = True
    """Whether the runtime is written, since it is what limits the quotas."""
    hooks: Sequence[QuotaHookPlugin] = ()
    name: str = "ElasticQuotaController"
    _warned: dict[str, tuple[str, ...]] = field(default_factory=dict)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._create_built_in()
        while True:
            self._report_faults()
            self.writer.patch_each(ELASTIC_QUOTAS, self._changes())
            await self.writer.sleep(_PERIOD)

    async def _create_built_in(self) -> None:
        """Create the root, the system and the default quota for users to see; scheduling works the same without
        them."""
        settings = self.accounts.settings
        for name, maximum in (
            (ROOT_QUOTA, None),
            (SYSTEM_QUOTA, settings.system_max),
            (DEFAULT_QUOTA, settings.default_max),
        ):
            if self.accounts.object(name) is None:
                body = _built_in(name, self.namespace, maximum)
                try:
                    await self.writer.create(ELASTIC_QUOTAS, body, self.namespace)
                except KoordinatorError as error:
                    self.writer.warn(f"quota {name} could not be created: {error}")

    def _changes(self) -> Iterator[ObjectPatch]:
        for quota, _, amounts in in_effect(self.accounts):
            if patch := self._patch(quota, amounts):
                yield ObjectPatch(quota.metadata.name, quota.metadata.namespace, patch)

    def _patch(self, quota: ElasticQuota, amounts: QuotaAmounts) -> Mapping[str, Any]:
        """The merged patch of the plugin and its hooks; the plugin's amounts override the hooks' values."""
        own = patch_of(quota, amounts if self.publishes_runtime else {**amounts, "runtime": NOTHING})
        found: dict[str, Any] = {}
        for patch in (*(hook.quota_patch(quota) for hook in self.hooks), own or {}):
            merge(found, patch)
        return found

    def _report_faults(self) -> None:
        """Report the errors of each quota, again only if they change or the program restarts."""
        quotas = {quota.metadata.uid: quota for quota in self.accounts.objects()}
        for uid in self._warned.keys() - quotas:
            del self._warned[uid]
        for uid, quota in quotas.items():
            faults = self.accounts.faults(quota)
            if faults != self._warned.get(uid, ()):
                for fault in faults:
                    self.warn(quota, fault)
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


def patch_of(quota: ElasticQuota, amounts: QuotaAmounts) -> dict[str, Any] | None:
    """The merge patch from the object's amounts to the current ones; None if they are equal. An amount of 0 equals a
    missing one, and an annotation that cannot be decoded counts as absent."""
    annotations: dict[str, str] = {}
    for key, current in published(amounts).items():
        known = _read(quota.metadata.annotations.get(f"{_PREFIX}/{key}", ""))
        if known is None or without_zeros(known) != without_zeros(current):
            annotations[f"{_PREFIX}/{key}"] = write_amounts(to_wire(current))
    patch: dict[str, Any] = {"metadata": {"annotations": annotations}} if annotations else {}
    if without_zeros(from_wire(quota.status.used)) != without_zeros(amounts["used"]):
        gone = {name: None for name in quota.status.used if name not in amounts["used"]}
        used = {name: str(amount) for name, amount in to_wire(amounts["used"]).items()}
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
        return from_wire(read_amounts(text))
    except DecodeError:
        return None
