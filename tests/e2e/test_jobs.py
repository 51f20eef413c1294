"""Jobs and CronJobs on ``koord up``, as a person tries them with kubectl."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.e2e.running import Kubectl, koord_up

_WAIT = "--timeout=60s"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed here")
def test_jobs_end_and_cron_jobs_start_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with koord_up(tmp_path, "--nodes=2", "--koordlets=0") as up:
            kubectl = Kubectl(up)
            await _complete(kubectl)
            await _fail(kubectl)
            await _suspend(kubectl)
            await _start_from_a_cron_job(kubectl)

    asyncio.run(scenario())


async def _complete(kubectl: Kubectl) -> None:
    output = await kubectl("create", "job", "hello", "--image=busybox", "--", "echo", "hi")
    assert "no controller" not in output
    await kubectl("wait", "--for=condition=complete", "job/hello", _WAIT)
    assert (await kubectl.status("job/hello"))["succeeded"] == 1
    await kubectl("delete", "job", "hello")
    await kubectl("wait", "--for=delete", "pod", "-l=job-name=hello", _WAIT)


async def _fail(kubectl: Kubectl) -> None:
    await kubectl("create", "job", "bad", "--image=busybox", "--", "false")
    await kubectl("patch", "job", "bad", "-p", '{"spec":{"backoffLimit":0}}')
    await kubectl("wait", "--for=condition=failed", "job/bad", _WAIT)
    reasons = {each["reason"] for each in (await kubectl.status("job/bad"))["conditions"]}
    assert reasons == {"BackoffLimitExceeded"}


async def _suspend(kubectl: Kubectl) -> None:
    await kubectl("create", "job", "long", "--image=busybox", "--", "sleep", "600")
    await kubectl("wait", "--for=jsonpath={.status.ready}=1", "job/long", _WAIT)
    await kubectl("patch", "job", "long", "-p", '{"spec":{"suspend":true}}')
    await kubectl("wait", "--for=condition=suspended", "job/long", _WAIT)
    await kubectl("wait", "--for=delete", "pod", "-l=job-name=long", _WAIT)
    await kubectl("delete", "job", "long")


async def _start_from_a_cron_job(kubectl: Kubectl) -> None:
    await kubectl("create", "cronjob", "tick", "--image=busybox", "--schedule=@every 1s", "--", "date")
    await kubectl("wait", "--for=jsonpath={.status.lastSuccessfulTime}", "cronjob/tick", _WAIT)
    await kubectl("create", "job", "by-hand", "--from=cronjob/tick")
    await kubectl("wait", "--for=condition=complete", "job/by-hand", _WAIT)
    await kubectl("delete", "cronjob", "tick")
    await kubectl("wait", "--for=delete", "job/by-hand", _WAIT)
