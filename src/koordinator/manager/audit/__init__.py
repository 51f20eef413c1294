"""The audit: records of modifications by all programs, kept in a bounded store and queried by koord audit."""
