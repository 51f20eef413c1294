"""Decisions on columns: no clock, no I/O, no logging. The program around it feeds events in and acts on the plans."""
