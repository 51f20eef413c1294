"""OOMScoreAdj: the order in which the kernel kills the processes of containers when memory runs out, by annotation.

The annotation ``koordinator.sh/oom-score-adj`` is for all containers of a pod; ``koordinator.sh/oom-score-adj-spec``,
JSON by the names of containers, goes before it. The sandbox keeps what the runtime gives it (pkg/koordlet/runtimehooks/
hooks/oomscoreadj).
"""

from __future__ import annotations

from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.koordlet import features
from koordinator.koordlet.enforce.executor.desired_settings import Priority
from koordinator.koordlet.enforce.hooks.contexts import Change, ContainerContext, HookError, PodContext, annotation
from koordinator.koordlet.enforce.hooks.registry import Hook
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.node.kernel_files import OOM_SCORE_ADJ

OWNER: Final = "OOMScoreAdj"


def container(pod: PodContext, container_: ContainerContext, _: Rules) -> Change | None:
    """For every process of a container that runs. HookError if an annotation is not valid."""
    if container_.is_sandbox:
        return None
    if annotation_keys.OOM_SCORE_ADJ_SPEC in pod.annotations:
        scores = annotation(pod, annotation_keys.OOM_SCORE_ADJ_SPEC, dict[str, int]) or {}
        if container_.name in scores:
            return _change(annotation_keys.OOM_SCORE_ADJ_SPEC, scores[container_.name])
    text = pod.annotations.get(annotation_keys.OOM_SCORE_ADJ)
    if not text:
        return None
    try:
        return _change(annotation_keys.OOM_SCORE_ADJ, int(text))
    except ValueError:
        raise HookError(f"metadata.annotations[{annotation_keys.OOM_SCORE_ADJ}]: {text!r} is not an integer") from None


def _change(key: str, score: int) -> Change:
    lowest, highest = OOM_SCORE_ADJ.lowest or 0, OOM_SCORE_ADJ.highest or 0
    if not lowest <= score <= highest:
        raise HookError(f"metadata.annotations[{key}]: {score} is not in [{lowest}, {highest}]")
    return Change(f"the pod's annotation {key}", Priority.POD, oom_score_adj=score)


HOOK: Final = Hook(OWNER, features.OOM_SCORE_ADJ, is_of_processes=True, container=container)
