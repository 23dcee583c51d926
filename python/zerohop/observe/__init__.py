"""Observation: counters, traces, logs, and `zerohop top`."""
