"""The tree of elastic quotas: parents and children, the quota of each pod, and guaranteed amounts."""
