"""PodDisruptionBudgets as an eviction meets them: which one covers a pod, and whether it lets one more go."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from koordinator.api.document import Document, copied
from koordinator.api.timestamps import format_time
from koordinator.cluster.admission_webhooks.label_selection import compile_selector
from koordinator.cluster.errors import ApiError, forbidden
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.encoding import decode
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.modify import retry, store
from koordinator.cluster.verbs.target import Target

DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
_REFUSED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_MAX_DISRUPTED_PODS: Final = 2000
"""Evictions that nobody has confirmed yet; beyond that something is wrong with whoever should."""
_RETRY_SECONDS: Final = 10


def budgets_of(environment: Environment, pod: Document) -> list[Document]:
    """The budgets whose selector matches; one without a selector matches nothing."""
    resource = budget_resource(environment)
    labels = pod["metadata"].get("labels") or {}
    prefix = resource.storage_prefix(pod["metadata"]["namespace"])
    budgets = (decode(resource, stored) for stored in environment.storage.list(prefix).items)
    return [budget for budget in budgets if selects(budget, labels)]


def selects(budget: Document, labels: Mapping[str, str]) -> bool:
    selector = budget["spec"].get("selector")
    if selector is None:
        return False
    matches = compile_selector(selector)
    return matches is None or matches(labels)


def budget_resource(environment: Environment) -> Resource:
    resource = environment.registry.stored("policy", "poddisruptionbudgets")
    assert resource is not None
    return resource


async def take_disruption(environment: Environment, budget: Document, pod: str, *, dry_run: bool) -> None:
    """Count the pod as gone. Raises ApiError 429 when the budget does not let it go, 403 when it is broken."""
    metadata = budget["metadata"]
    target = Target(budget_resource(environment), metadata["namespace"], metadata["name"])

    async def attempt(stored: Stored, newest: Document) -> Stored:
        _check(target, newest)
        changed = copied(newest)
        status = changed["status"]
        status["disruptionsAllowed"] -= 1
        now = environment.clock.now()
        if not status["disruptionsAllowed"]:
            set_allowed_condition(changed, now)
        status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: format_time(now)}
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
