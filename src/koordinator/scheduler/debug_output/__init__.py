"""Logs details of scheduling decisions for debug flags, in the original's formats."""

from koordinator.scheduler.debug_output.output import DebugOutput
from koordinator.scheduler.debug_output.settings import DebugSettings

__all__ = ["DebugOutput", "DebugSettings"]
