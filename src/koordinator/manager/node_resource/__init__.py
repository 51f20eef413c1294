"""The controller ``noderesource``: batch and mid capacity, devices and ratios of nodes."""
