"""Benchmarks that measure zerohop and its peers side by side, in one run, on one machine."""
