"""QoS-based co-location scheduling for Kubernetes."""

__version__ = "0.2.0"
