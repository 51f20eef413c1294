"""Each pod of a Job is counted once, in whatever order pods end and passes are cut off."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from koordinator.cluster.controllers.pod_state import is_active
from tests.cluster.controllers.job.job_in_memory import Crash, JobInMemory, job_with

EVENTS = st.tuples(st.sampled_from(["pass", "Running", "Succeeded", "Failed", "delete"]), st.integers(0, 7))
LONGEST_BACKOFF = timedelta(minutes=10)
MODES = st.sampled_from(["NonIndexed", "Indexed"])


class CrashAfter:
    """Lets so many writes through; 0 means all."""

    def __init__(self, writes: int) -> None:
        self.left = writes

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Crash


def happen(cluster: JobInMemory, event: str, choice: int) -> None:
    """A pass that ends after ``choice`` writes, or an event of the pod with that number among those that run."""
    if event == "pass":
        cluster.run_pass(CrashAfter(choice))
        return
    running = [uid for uid, pod in cluster.pods.items() if pod.status.phase in ("Pending", "Running")]
    if running:
        uid = running[choice % len(running)]
        if event == "delete":
            cluster.delete(uid)
        else:
            cluster.set_phase(uid, event)


def run_to_the_end(cluster: JobInMemory) -> None:
    """All pods succeed from here on."""
    for _ in range(20):
        cluster.now += LONGEST_BACKOFF
        cluster.run_pass()
        for uid in [uid for uid, pod in cluster.pods.items() if pod.status.phase in ("Pending", "Running")]:
            cluster.set_phase(uid, "Succeeded" if is_active(cluster.pods[uid]) else "Failed")
    assert cluster.is_finished


@given(MODES, st.integers(1, 4), st.integers(1, 5), st.integers(0, 6), st.lists(EVENTS, max_size=40))
def test_each_pod_is_counted_once(
    mode: str, parallelism: int, completions: int, limit: int, events: list[tuple[str, int]]
) -> None:
    spec = {"parallelism": parallelism, "completions": completions, "backoff_limit": limit, "completion_mode": mode}
    cluster = JobInMemory(job_with(**spec))
    for event, choice in events:
        happen(cluster, event, choice)
    run_to_the_end(cluster)
    status = cluster.job.status
    assert status.succeeded + status.failed + cluster.deleted_as_surplus == cluster.created


@given(MODES, st.integers(0, 4), st.integers(1, 5), st.lists(EVENTS, max_size=40))
def test_no_more_pods_are_active_than_parallelism_allows(
    mode: str, parallelism: int, completions: int, events: list[tuple[str, int]]
) -> None:
    spec = {"parallelism": parallelism, "completions": completions, "completion_mode": mode}
    cluster = JobInMemory(job_with(**spec))
    for event, choice in events:
        happen(cluster, event, choice)
        assert sum(map(is_active, cluster.pods.values())) <= parallelism


@given(st.integers(1, 4), st.integers(1, 5), st.lists(EVENTS, max_size=40))
def test_an_index_succeeds_at_most_once(parallelism: int, completions: int, events: list[tuple[str, int]]) -> None:
    cluster = JobInMemory(job_with(parallelism=parallelism, completions=completions, completion_mode="Indexed"))
    for event, choice in events:
        happen(cluster, event, choice)
    run_to_the_end(cluster)
    assert len(cluster.succeeded_indexes) == len(set(cluster.succeeded_indexes))


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2), st.lists(EVENTS, max_size=50))
def test_each_index_has_a_limit_of_its_own(
    parallelism: int, completions: int, limit: int, events: list[tuple[str, int]]
) -> None:
    cluster = JobInMemory(
        job_with(
            parallelism=parallelism,
            completions=completions,
            completion_mode="Indexed",
            backoff_limit_per_index=limit,
            backoff_limit=2**31 - 1,
        )
    )
    for event, choice in events:
        happen(cluster, event, choice)
    run_to_the_end(cluster)
    status = cluster.job.status
    assert status.failed <= (limit + 1) * completions
    assert status.succeeded + status.failed == cluster.created
