"""The table of built-in types, as the embedded API reads it; it lies in ``api``, since admission reads it too."""

from koordinator.api.kubernetes_types.table import SCALARS, Field, ObjectType, Shape, Type, kind_type, named

__all__ = ["SCALARS", "Field", "ObjectType", "Shape", "Type", "kind_type", "named"]
