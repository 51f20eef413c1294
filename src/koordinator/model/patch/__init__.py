"""Patches of plain documents that more than one program applies."""
