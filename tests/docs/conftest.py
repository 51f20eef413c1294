"""The site that several modules of tests look at: built once."""

from __future__ import annotations

import pytest

from tests.docs.site import Site, build


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return build(tmp_path_factory.mktemp("site"))
