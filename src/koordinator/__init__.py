"""QoS-based co-location scheduling for Kubernetes."""

__version__ = "0.1.0"
