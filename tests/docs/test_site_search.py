"""A newcomer's questions, in a newcomer's words: the site's own search names the answer among its first three."""

from __future__ import annotations

import pytest

from tests.docs.site import Site

FIRST = 3
QUESTIONS: dict[str, tuple[str, ...]] = {
    "how do I try it on my laptop": ("local-cluster.html", "index.html#try-it"),
    "how do I install this on my cluster": ("install.html",),
    "why is my pod pending": ("recipes/pod-pending.html", "explain.html"),
    "how do I run batch jobs on idle CPUs": ("recipes/first-batch-job.html",),
    "my batch pods keep getting killed": ("recipes/batch-pods-evicted.html",),
    "how do I turn everything off at once": ("recipes/stop-everything.html",),
    "how do I make sure that a team always gets its share": ("recipes/guaranteed-quota.html", "quotas.html"),
    "how do I test a change on one node first": ("recipes/canary-node.html",),
    "how do I move over from the Go version": ("recipes/migrate-from-the-original.html",),
    "how do I make a backup": ("recipes/back-up-and-restore.html",),
    "how much memory does the scheduler need for 5000 nodes": ("recipes/size-the-programs.html",),
    "how do I start all workers of a training job together": ("gangs.html",),
    "how do I share one GPU between several pods": ("devices.html",),
    "how do I give a pod its own cores": ("numa.html",),
    "how do I keep capacity free for tomorrow's release": ("reservations.html",),
    "what does this warning event mean": ("recipes/read-an-event.html",),
    "my web server is slow since batch jobs run beside it": ("recipes/slow-service.html", "interference.html"),
    "how do I empty a node for maintenance": ("migration.html", "recipes/empty-a-node.html"),
    "who can read the metrics": ("access.html", "metrics.html"),
    "how do I write my own scheduler plugin": ("plugins.html",),
}
"""They were written before anybody looked at what the search says. Where it fails, the pages change, not the question.
An answer is a page, all of its sections included, or one section."""


def is_answered_by(location: str, answer: str) -> bool:
    return location == answer or location.startswith(f"{answer}#")


def test_twenty_questions_are_asked() -> None:
    assert len(QUESTIONS) == 20


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_finds_its_answer(question: str, site: Site) -> None:
    found = site.search.find(question)[:FIRST]
    answers = QUESTIONS[question]
    assert any(is_answered_by(location, answer) for location in found for answer in answers), found


@pytest.mark.parametrize("query", ["", "the", "zzzzzz", '"batch pods"', "CPU", "-", "koord-scheduler --port=0"])
def test_any_query_is_answered(query: str, site: Site) -> None:
    """With at most as many sections as the page can list."""
    assert len(site.search.find(query)) <= 30
