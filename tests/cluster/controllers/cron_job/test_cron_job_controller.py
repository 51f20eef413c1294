"""The CronJob controller on an API server in memory."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.kinds import CRON_JOBS, JOBS, PODS
from koordinator.base.clock import ManualClock
from koordinator.cluster.controllers.cron_job.controller import CronJobController
from koordinator.cluster.controllers.job.controller import JobController
from koordinator.kube.errors import ApiStatusError
from tests.cluster.controllers.running_controllers import Document, asynchronous, running_controllers
from tests.in_memory_api import InMemoryApi
from tests.waiting import wait_for


def spec_with(schedule: str = "* * * * *", **spec: Any) -> Document:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    return {"schedule": schedule, "jobTemplate": {"spec": {"template": {"spec": pod}}}, **spec}


@asynchronous
async def test_a_job_each_minute() -> None:
    clock = ManualClock()
    async with running_controllers(CronJobController, api=InMemoryApi(clock)) as cluster:
        await cluster.create(CRON_JOBS, "tick", spec_with())
        await clock.advance(61.0)
        await clock.advance(60.0)
        await wait_for(lambda: len(cluster.api.all(JOBS)) == 2)
        status = (await cluster.until(CRON_JOBS, "tick", lambda each: len(each["status"].get("active", [])) == 2))[
            "status"
        ]
    assert [each["name"] for each in status["active"]] == cluster.api.names(JOBS)
    assert status["lastScheduleTime"] == "2026-01-01T00:02:00Z"


@asynchronous
async def test_a_job_that_completes_is_the_last_success() -> None:
    clock = ManualClock()
    async with running_controllers(CronJobController, JobController, api=InMemoryApi(clock)) as cluster:
        await cluster.create(CRON_JOBS, "tick", spec_with())
        await clock.advance(61.0)
        (pod,) = await cluster.pods(1)
        await cluster.set_phase(pod, "Succeeded")
        found = await cluster.until(CRON_JOBS, "tick", lambda each: "lastSuccessfulTime" in each["status"])
    assert "active" not in found["status"]


@asynchronous
async def test_a_status_that_was_not_written_is_made_up_for() -> None:
    clock = ManualClock()
    api = InMemoryApi(clock)
    async with running_controllers(CronJobController, api=api) as cluster:
        await cluster.create(CRON_JOBS, "tick", spec_with())
        await clock.advance(61.0)
        await cluster.until(CRON_JOBS, "tick", lambda each: "lastScheduleTime" in each["status"])
    document = api.document(CRON_JOBS, "tick", "default")
    api.put(CRON_JOBS, document | {"status": {}})
    async with running_controllers(CronJobController, api=api) as cluster:
        found = await cluster.until(CRON_JOBS, "tick", lambda each: "lastScheduleTime" in each["status"])
    assert [each["name"] for each in found["status"]["active"]] == api.names(JOBS)


@asynchronous
async def test_with_its_history_at_0_a_job_goes_at_once() -> None:
    clock = ManualClock()
    async with running_controllers(CronJobController, JobController, api=InMemoryApi(clock)) as cluster:
        await cluster.create(CRON_JOBS, "tick", spec_with(successfulJobsHistoryLimit=0))
        await clock.advance(61.0)
        (pod,) = await cluster.pods(1)
        await cluster.set_phase(pod, "Succeeded")
        await wait_for(lambda: not cluster.api.all(JOBS))
    assert len(cluster.api.all(PODS)) == 1


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"schedule": "* * *"}, 'spec.schedule: Invalid value: "* * *": expected exactly 5 fields, found 3: [* * *]'),
        ({"timeZone": "Mars"}, 'spec.timeZone: Invalid value: "Mars": unknown time zone Mars'),
        ({"schedule": "TZ=UTC * * * * *"}, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
        ({"concurrencyPolicy": "Never"}, 'supported values: "Allow", "Forbid", "Replace"'),
    ],
)
def test_what_the_api_server_refuses(spec: Document, error: str) -> None:
    @asynchronous
    async def create() -> None:
        async with running_controllers() as cluster:
            with pytest.raises(ApiStatusError) as raised:
                await cluster.create(CRON_JOBS, "tick", spec_with() | spec)
        assert error in raised.value.message

    create()
