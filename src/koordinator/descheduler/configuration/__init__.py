"""The configuration of koord-descheduler: ``descheduler/v1alpha2``, DeschedulerConfiguration."""
