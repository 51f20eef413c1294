"""How a release is made; docs/release.md says when and by which commands. None of it is in the package."""
