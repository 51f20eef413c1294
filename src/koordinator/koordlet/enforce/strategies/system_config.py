"""System config: the kernel's settings of the node as a whole that the NodeSLO names; the others are left alone.

What it no longer names stays as it was written: the kernel does not say what the machine's administrator had before
(pkg/koordlet/qosmanager/plugins/sysreconcile).
"""

from __future__ import annotations

from typing import Final

from koordinator.api.resource_names import MEMORY
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.enforce.strategies.snapshot import Decision, Snapshot
from koordinator.node import kernel_files as files
from koordinator.node.kernel_files import Target

OWNER: Final = "SystemConfig"
_KIB: Final = 1024
_FACTOR: Final = 10_000
"""minFreeKbytesFactor is in ten-thousandths."""


def decide(snapshot: Snapshot) -> Decision:
    """The sysctls and switches of ``systemStrategy``."""
    strategy = snapshot.policy.system_strategy if snapshot.policy is not None else None
    memory = snapshot.node.status.capacity.get(MEMORY) if snapshot.node is not None else None
    if strategy is None or memory is None:
        return Decision(None, "the NodeSLO or the Node is not known")
    factor = strategy.min_free_kbytes_factor
    values = {
        files.MIN_FREE_KBYTES: None if factor is None else memory.value // _KIB * factor // _FACTOR,
        files.WATERMARK_SCALE_FACTOR: strategy.watermark_scale_factor,
        files.MEMCG_REAPER: strategy.memcg_reap_background,
        files.SCHED_GROUP_IDENTITY: strategy.sched_group_identity_enabled,
        files.SCHED_IDLE_SAVER: strategy.sched_idle_saver_wmark,
        files.PAGE_CACHE_LIMIT: strategy.page_cache_limit_enabled,
    }
    reason = "the NodeSLO's systemStrategy"
    desired = [
        DesiredSetting(OWNER, Target(file), value, reason) for file, value in values.items() if value is not None
    ]
    switches = sorted(strategy.sched_features.items())
    desired += [
        DesiredSetting(OWNER, Target(files.SCHED_FEATURES, part=name), int(is_on), reason) for name, is_on in switches
    ]
    return Decision(tuple(desired), reason)
