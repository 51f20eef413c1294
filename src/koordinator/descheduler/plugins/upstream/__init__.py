"""The strategies of the Kubernetes descheduler (sigs.k8s.io/descheduler v0.35), with its arguments and defaults."""
