"""POST pods/NAME/eviction: delete a pod if its PodDisruptionBudget allows it; the arithmetic of budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import msgspec

from koordinator.api.document import Document, copied
from koordinator.api.timestamps import format_time
from koordinator.cluster.errors import ApiError, bad_request, forbidden, invalid, not_found
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.strategy import causes
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.verbs.delete import check_preconditions, delete
from koordinator.cluster.verbs.environment import Attributes, Environment, NoAdmission, NoWebhooks, mutate, review
from koordinator.cluster.verbs.options import API_SERVER, DeleteOptions, WriteOptions
from koordinator.cluster.verbs.selection import compile_selector
from koordinator.cluster.verbs.target import Target, check_form, check_namespace, decode
from koordinator.cluster.verbs.update import Attempt, retry, store
from koordinator.model.pod_disruption import is_unprotected, lets_unready_go

# PodDisruptionBudgets as an eviction meets them: which one covers a pod, and whether it lets one more go.


DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
_REFUSED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_MAX_DISRUPTED_PODS: Final = 2000
"""Evictions that are not confirmed yet; beyond that something is wrong with the disruption controller."""
_RETRY_SECONDS: Final = 10


def budgets_of(environment: Environment, pod: Document) -> list[Document]:
    """The budgets whose selector matches; one without a selector matches nothing."""
    resource = budget_resource(environment)
    labels = pod["metadata"].get("labels") or {}
    prefix = Target(resource, pod["metadata"]["namespace"]).prefix
    budgets = (decode(resource, stored) for stored in environment.storage.list(prefix).items)
    return [budget for budget in budgets if selects(budget, labels)]


def selects(budget: Document, labels: Mapping[str, str]) -> bool:
    selector = budget["spec"].get("selector")
    if selector is None:
        return False
    matches = compile_selector(selector)
    return matches is None or matches(labels)


def budget_resource(environment: Environment) -> Resource:
    resource = environment.registry.stored["policy", "poddisruptionbudgets"]
    assert resource is not None
    return resource


async def take_disruption(environment: Environment, budget: Document, pod: str, *, dry_run: bool) -> None:
    """Count the pod as gone. Raises ApiError 429 when the budget does not let it go, 403 when it is broken."""
    metadata = budget["metadata"]
    target = Target(budget_resource(environment), metadata["namespace"], metadata["name"])
    fields = environment.field_manager(target.resource, WriteOptions(user_agent=API_SERVER), "status")

    async def attempt(stored: Stored, newest: Document) -> Stored:
        _check(target, newest)
        changed = copied(newest)
        status = changed["status"]
        status["disruptionsAllowed"] -= 1
        now = environment.clock.now()
        if not status["disruptionsAllowed"]:
            set_allowed_condition(changed, now)
        status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: format_time(now)}
        if fields is not None:
            fields.decode(changed, newest)
        return await store(environment, target, stored, changed, dry_run=dry_run)

    await retry(environment, target, attempt)


def set_allowed_condition(budget: Document, now: datetime) -> None:
    """Make the condition say what ``status.disruptionsAllowed`` does."""
    status = budget["status"]
    allowed = (status.get("disruptionsAllowed") or 0) > 0
    wanted: Document = {
        "type": DISRUPTION_ALLOWED,
        "status": "True" if allowed else "False",
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
    }
    set_condition(status, wanted, now)


def set_condition(status: Document, wanted: Document, now: datetime) -> None:
    """Put a condition in the place of that of its type; the time of transition is that of a change of its status."""
    conditions = status.setdefault("conditions", [])
    found = next((condition for condition in conditions if condition.get("type") == wanted["type"]), None)
    if status.get("observedGeneration"):
        wanted["observedGeneration"] = status["observedGeneration"]
    kept = found is not None and found.get("status") == wanted["status"]
    wanted["lastTransitionTime"] = found["lastTransitionTime"] if found and kept else format_time(now)
    if found is None:
        conditions.append(wanted)
    else:
        found.clear()
        found.update(wanted)


def still_processed(name: str) -> ApiError:
    """The budget has not been looked at since it changed, or the pod changed meanwhile: worth another try."""
    return _too_many(f"The disruption budget {name} is still being processed by the server.", _RETRY_SECONDS)


def _check(target: Target, budget: Document) -> None:
    status, name = budget["status"], target.name
    if (status.get("observedGeneration") or 0) < (budget["metadata"].get("generation") or 0):
        raise still_processed(name)
    allowed = status.get("disruptionsAllowed") or 0
    if allowed < 0:
        raise forbidden(target.resource, name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or ()) > _MAX_DISRUPTED_PODS:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden(target.resource, name, why)
    if not allowed:
        raise _too_many(f"The disruption budget {name} {_reason(status)}")


def _reason(status: Document) -> str:
    conditions = status.get("conditions") or []
    condition: Document = next((found for found in conditions if found.get("type") == DISRUPTION_ALLOWED), {})
    message = condition.get("message") if condition.get("status") == "False" else ""
    current, desired = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
    if message and condition.get("reason") == "SyncFailed":
        return f"does not allow evicting pods currently because it failed sync: {message}"
    if current <= desired:
        return f"needs {desired} healthy pods and has {current} currently"
    if message:
        return f"does not allow evicting pods currently ({condition.get('reason') or ''}): {message}"
    return "does not allow evicting pods currently"


def _too_many(why: str, retry_after: int | None = None) -> ApiError:
    causes = [{"reason": "DisruptionBudget", "message": why}]
    return ApiError(429, "TooManyRequests", _REFUSED, {"causes": causes}, retry_after)


_KIND: Final = ("policy", "v1", "Eviction")
_VERSIONS: Final = ("policy/v1", "policy/v1beta1")
_SERVER_SET_FIELD: Final = "ignoreStoreReadErrorWithClusterBreakingPotential"
_TOO_MANY_BUDGETS: Final = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
)
_ATTEMPTS: Final = 20
EVICTION: Final = Resource(
    group=_KIND[0],
    version=_KIND[1],
    plural="evictions",
    kind=_KIND[2],
    namespaced=True,
    strategy=ObjectStrategy("policy/v1", "Eviction"),
)
"""The form of the body; nothing is stored as it."""


async def evict(environment: Environment, target: Target, eviction: Document, options: WriteOptions) -> None:
    """Raises ApiError: 404 without the pod, 409 for a precondition, 429 when the budget does not let the pod go."""
    _complete(target, eviction)
    attributes = Attributes(
        "CREATE", target, eviction, None, environment.context(options.warnings), options, body_kind=_KIND
    )
    await mutate(environment, attributes, lambda: EVICTION.strategy.decode(eviction))
    if eviction["metadata"].get("name") != target.name:
        raise bad_request("name in URL does not match name in Eviction object")
    deletion = _delete_options(target, eviction, options)
    await review(environment, attributes)
    # Webhooks for deletions are not called for this one, as by the real server.
    silent = replace(environment, admission=NoAdmission(), webhooks=NoWebhooks())
    await _Eviction(silent, msgspec.structs.replace(target, subresource=""), deletion).run()


def _complete(target: Target, eviction: Document) -> None:
    """What the real server fills in before anyone else sees the eviction. Raises ApiError 400."""
    check_form(EVICTION, eviction, *_VERSIONS)
    check_namespace(target, eviction, EVICTION)
    EVICTION.strategy.decode(eviction)


def _delete_options(target: Target, eviction: Document, options: WriteOptions) -> DeleteOptions:
    body = eviction.get("deleteOptions") or {}
    if body.get(_SERVER_SET_FIELD):
        why = "can not be set for pod eviction, try after removing the option"
        raise invalid(EVICTION, target.name, [causes.invalid(f"deleteOptions.{_SERVER_SET_FIELD}", True, why)])
    requested = body.get("dryRun") or (["All"] if options.dry_run else None)
    return DeleteOptions.parse({**body, "dryRun": requested}, {})


@dataclass(frozen=True, slots=True)
class _Eviction:
    """One pod on its way out."""

    environment: Environment
    target: Target
    options: DeleteOptions

    async def run(self) -> None:
        pod = self._pod()
        attempts = 1
        while _ends_anyway(pod):
            try:
                await self._delete(self._pinned(pod))
            except ApiError as error:
                if error.code != 409 or self.options.resource_version or attempts == _ATTEMPTS:
                    raise
                attempts += 1
                pod = self._pod()
            else:
                return
        await self._check_budget(pod)

    async def _check_budget(self, pod: Document) -> None:
        budgets = budgets_of(self.environment, pod)
        if len(budgets) > 1:
            raise ApiError(500, "", _TOO_MANY_BUDGETS)
        if not budgets:
            return await self._delete(self.options)
        (budget,) = budgets
        if _is_ready(pod) or not _lets_unready_go(budget):
            dry_run = self.options.dry_run
            await take_disruption(self.environment, budget, self.target.name, dry_run=dry_run)
            return await self._delete(self.options)
        # Only while it stays as it is: were it ready meanwhile, the budget would count it.
        try:
            return await self._delete(replace(self.options, resource_version=pod["metadata"]["resourceVersion"]))
        except ApiError as error:
            if error.code != 409 or self.options.resource_version:
                raise
            raise still_processed(budget["metadata"]["name"]) from error

    def _pod(self) -> Document:
        stored = self.environment.storage.get(self.target.key)
        if stored is None:
            raise not_found(self.target.resource, self.target.name)
        return decode(self.target.resource, stored)

    def _pinned(self, pod: Document) -> DeleteOptions:
        """A pod that has not started yet must not get ready on its way out: then its budget would count it."""
        starting = pod["status"].get("phase") == "Pending" and not pod["metadata"].get("deletionTimestamp")
        if not starting or self.options.resource_version:
            return self.options
        return replace(self.options, resource_version=pod["metadata"]["resourceVersion"])

    async def _delete(self, options: DeleteOptions) -> None:
        if not options.dry_run:
            marked = await retry(self.environment, self.target, self._marker(options))
            if options.resource_version:
                options = replace(options, resource_version=str(marked.revision))
        await delete(self.environment, self.target, options)

    def _marker(self, options: DeleteOptions) -> Attempt:
        async def mark(stored: Stored, pod: Document) -> Stored:
            check_preconditions(self.target, pod, options)
            marked = copied(pod)
            _add_condition(marked, format_time(self.environment.clock.now()))
            return await store(self.environment, self.target, stored, marked, dry_run=False)

        return mark


def _ends_anyway(pod: Document) -> bool:
    phase = (pod.get("status") or {}).get("phase") or ""
    return is_unprotected(phase, is_terminating=bool(pod["metadata"].get("deletionTimestamp")))


def _is_ready(pod: Document) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(found.get("type") == "Ready" and found.get("status") == "True" for found in conditions)


def _lets_unready_go(budget: Document) -> bool:
    current, desired = (budget["status"].get(name) or 0 for name in ("currentHealthy", "desiredHealthy"))
    return lets_unready_go(budget["spec"].get("unhealthyPodEvictionPolicy") or "", current, desired)


def _add_condition(pod: Document, now: str) -> None:
    conditions = pod["status"].setdefault("conditions", [])
    found = next((condition for condition in conditions if condition.get("type") == "DisruptionTarget"), None)
    since = found["lastTransitionTime"] if found is not None and found.get("status") == "True" else now
    wanted = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": since,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    if found is None:
        conditions.append(wanted)
    else:
        found.clear()
        found.update(wanted)
