"""koord-descheduler: moves pods off nodes that are too full, and off nodes where they should not be."""
