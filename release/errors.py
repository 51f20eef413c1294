"""Why no release is made."""


class ReleaseError(Exception):
    """A sentence for whoever makes the release."""
