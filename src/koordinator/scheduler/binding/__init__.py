"""Decisions out: from the assumed pod to its node, by way of Permit, PreBind, Bind and evictions."""
