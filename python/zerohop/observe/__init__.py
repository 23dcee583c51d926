"""What is going on: counters, traces, logs, and `zerohop top`."""
