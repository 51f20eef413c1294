"""What both directions share: the media type, and the numbers of ``runtime.Unknown``, which every object is in.

``k8s\\0``, then a message that names version and kind beside the bytes of the object.
"""

from __future__ import annotations

from typing import Final

from koordinator.base.errors import KoordinatorError

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"
TYPE_META, RAW, CONTENT_ENCODING, RAW_TYPE = 1, 2, 3, 4
API_VERSION, KIND = 1, 2

TYPE_STRING: Final = 1
"""What the first field of an IntOrString says of a text; 0 says that it is a number."""


class NoTable(KoordinatorError):
    """A kind whose messages have no description: a custom resource."""
