"""What a local cluster starts with, as files that a person can read and copy: scheduler profile, priority classes."""
