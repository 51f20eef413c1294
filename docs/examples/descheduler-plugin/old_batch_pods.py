"""OldBatchPods: batch pods that have run for too long make room for those that wait."""

from datetime import timedelta

import msgspec

from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.descheduler.framework import DeschedulePlugin, Eviction, Plan, Remark, Snapshot


class OldBatchPodsArgs(msgspec.Struct, rename="camel"):
    max_hours: int = 24


class OldBatchPods(DeschedulePlugin):
    name = "OldBatchPods"
    args_type = OldBatchPodsArgs

    def deschedule(self, snapshot: Snapshot) -> Plan:
        oldest, evicted = snapshot.now - timedelta(hours=self.args.max_hours), 0
        for node in snapshot.nodes:
            for pod in snapshot.pods_on(node.metadata.name):
                started = pod.status.start_time
                is_old = started is not None and started <= oldest
                is_batch = priority_class_with_default(pod) is PriorityClass.BATCH
                if is_old and is_batch and not self.handle.evictor.filter(pod):
                    taken = yield Eviction(pod, f"has run for more than {self.args.max_hours} hours")
                    evicted += taken
        yield Remark(f"{evicted} old batch pods leave")
