"""The controller ``quotaprofile``: reconciles every profile when it changes and every ten seconds."""

from __future__ import annotations

import logging
from typing import Final

from koordinator.api.elastic_quota_profile import ElasticQuotaProfile
from koordinator.api.kinds import ELASTIC_QUOTA_PROFILES, ELASTIC_QUOTAS, NODES
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.event_series import reference_to
from koordinator.kube.interface import PatchType
from koordinator.manager.controllers import ControllerContext
from koordinator.manager.quota_profile.decision import Plan, decide
from koordinator.model.label_selector import SelectorError

logger = logging.getLogger(__name__)

_PERIOD: Final = 10.0
_AFTER_FAILURE: Final = 2.0


class QuotaProfileController:
    """Keeps one quota for each profile; deleting a profile leaves its quota."""

    name = "quotaprofile"

    def __init__(self, context: ControllerContext) -> None:
        namespace = context.options.namespace
        self._client = context.client
        self._recorder = context.events.recorder("quotaprofile-controller")
        self._nodes = context.informers.informer(NODES)
        self._quotas = context.informers.informer(ELASTIC_QUOTAS, namespace=namespace, absent_is_empty=True)
        self._profiles = context.informers.informer(ELASTIC_QUOTA_PROFILES, namespace=namespace, absent_is_empty=True)
        self._reconciler = context.reconcilers.make(
            self.name,
            self._reconcile,
            lambda: [profile.metadata.key for profile in self._profiles.list()],
        )
        self._profiles.add_handlers(
            name=self.name,
            on_add=lambda profile, _: self._reconciler.add(profile.metadata.key),
            on_update=self._changed,
        )

    async def run(self) -> None:
        await self._reconciler.run()

    def _changed(self, before: ElasticQuotaProfile, now: ElasticQuotaProfile) -> None:
        old, new = before.metadata, now.metadata
        if old.generation != new.generation or old.annotations != new.annotations or old.labels != new.labels:
            self._reconciler.add(new.key)

    async def _reconcile(self, key: str) -> float | None:
        profile = self._profiles.get(key)
        if profile is None or profile.metadata.deletion_timestamp is not None:
            return None
        namespace = profile.metadata.namespace
        quota = self._quotas.get(f"{namespace}/{profile.spec.quota_name}")
        try:
            plan = decide(profile, quota, self._nodes.list())
        except SelectorError as error:
            self._warn(profile, "InvalidProfile", f"spec.nodeSelector: {error}")
            return _PERIOD
        for remark in plan.remarks:
            self._warn(profile, "InvalidProfile", remark)
        if plan.profile_patch is not None:
            name = profile.metadata.name
            await self._client.patch(ELASTIC_QUOTA_PROFILES, name, plan.profile_patch, PatchType.MERGE, namespace)
        return await self._keep_quota(profile, plan)

    async def _keep_quota(self, profile: ElasticQuotaProfile, plan: Plan) -> float:
        """Write the plan of one profile. Returns the seconds until it is to be reconciled again."""
        try:
            await self._write_quota(profile, plan)
        except KubeError as error:
            if isinstance(error, ApiStatusError) and error.is_already_exists:
                # Created a moment ago, perhaps by this controller; the cache will show it soon.
                return _AFTER_FAILURE
            verb = "Create" if plan.create_quota is not None else "Update"
            self._warn(profile, f"{verb}QuotaFailed", f"failed to {verb.lower()} quota, err: {error}")
            logger.warning("quotaprofile: %s: %s of its quota failed: %s", profile.metadata.key, verb.lower(), error)
            return _AFTER_FAILURE
        return _PERIOD

    async def _write_quota(self, profile: ElasticQuotaProfile, plan: Plan) -> None:
        namespace = profile.metadata.namespace
        if plan.create_quota is not None:
            await self._client.create(ELASTIC_QUOTAS, plan.create_quota, namespace)
        elif plan.quota_patch is not None:
            name = profile.spec.quota_name
            await self._client.patch(ELASTIC_QUOTAS, name, plan.quota_patch, PatchType.MERGE, namespace)

    def _warn(self, profile: ElasticQuotaProfile, reason: str, note: str) -> None:
        self._recorder.event(reference_to(ELASTIC_QUOTA_PROFILES, profile), "Warning", reason, "Reconcile", note)
