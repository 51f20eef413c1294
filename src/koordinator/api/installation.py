"""The names under which koord-manager is installed, unless its flags or its environment say otherwise.

They are the original's: a cluster that changes to this program keeps the objects of the other one.
"""

from __future__ import annotations

from typing import Final

NAMESPACE: Final = "koordinator-system"
"""Of the programs, of their leases and of their ConfigMaps."""
MANAGER_LEASE: Final = "koordinator-manager"
WEBHOOK_SERVICE: Final = "koordinator-webhook-service"
WEBHOOK_PORT: Final = 9876
"""Behind the Service."""
WEBHOOK_CERTIFICATES: Final = "koordinator-webhook-certs"
"""The Secret."""
MUTATING_CONFIGURATION: Final = "koordinator-mutating-webhook-configuration"
VALIDATING_CONFIGURATION: Final = "koordinator-validating-webhook-configuration"
