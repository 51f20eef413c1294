"""The real server's form of documents, as the embedded API writes them; it lies in ``api``, beside the table."""

from koordinator.api.kubernetes_types.canonical import WrongType, canonicalize

__all__ = ["WrongType", "canonicalize"]
