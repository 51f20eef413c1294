"""The version is written by hand in one place; all others follow it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import koordinator
from koordinator.api.manifests.chart import chart_files
from koordinator.kube.connect import user_agent
from release import version
from release.errors import ReleaseError
from release.version import HOME, current, parsed, stale, with_version

ROOT = Path(__file__).parents[2]
OTHER = "98.7.6"


def test_every_page_and_comment_has_the_version() -> None:
    """A name of an image, a wheel or a program with another one: python -m release version, with the one in HOME."""
    assert [str(path.relative_to(ROOT)) for path, _ in stale(ROOT, koordinator.__version__)] == []


def test_it_is_where_programs_and_the_release_find_it() -> None:
    assert current(ROOT) == koordinator.__version__
    assert user_agent("koord").startswith(f"koord/{koordinator.__version__} ")


def test_what_is_made_by_make_manifests_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(koordinator, "__version__", OTHER)
    chart = chart_files(ROOT / "charts/koordinator")["Chart.yaml"]
    assert chart.count(f"ersion: {OTHER}\n") == 2


def test_only_our_own_versions_are_spelt_anew() -> None:
    text = (
        "docker build --tag REGISTRY/koordinator:0.1.0 . # koordinator-node:0.1.0\n"
        "pip install dist/koordinator-0.1.0-py3-none-any.whl, koordinator:0.1.0-nvidia\n"
        "koord up is healthy (process 4242, version 0.1.0, since)\n"
    )
    assert with_version(text, OTHER) == text.replace("0.1.0", OTHER)
    others = "koordinator:v1.8.0, koordinator-1.x, version 1.8.0 of it, Python 3.11.7, 10.1.0.1, koord 1.8\n"
    assert with_version(others, OTHER) == others


@pytest.fixture
def checkout(tmp_path: Path) -> Callable[[str], Path]:
    """One that spells a version in each kind of place."""

    def made(spelt: str) -> Path:
        for name, text in {
            str(HOME): f'"""What it is."""\n\n__version__ = "{spelt}"\n',
            "README.md": f"koordinator:{spelt}\n",
            "docs/page.md": f"koordinator-{spelt}-py3\n",
            "CHANGELOG.md": "koordinator:0.0.1\n",
        }.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return made


def test_a_version_is_written_into_all_places_but_those_of_earlier_releases(checkout: Callable[[str], Path]) -> None:
    root = checkout("1.2.3")
    changed = version.write(root, OTHER)
    assert sorted(str(path.relative_to(root)) for path in changed) == ["README.md", "docs/page.md", str(HOME)]
    assert current(root) == OTHER
    assert list(stale(root, OTHER)) == []
    assert (root / "CHANGELOG.md").read_text() == "koordinator:0.0.1\n"


@pytest.mark.parametrize("wrong", ["1.2", "v1.2.3", "1.2.3rc1", ""])
def test_what_helm_or_pip_would_read_otherwise_is_refused(wrong: str) -> None:
    with pytest.raises(ReleaseError, match=r"three numbers such as 1\.2\.3"):
        parsed(wrong)
