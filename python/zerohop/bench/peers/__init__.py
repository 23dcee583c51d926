"""Whom the benchmark stands beside on hosts; those of GPUs are with the commands that measure there."""
