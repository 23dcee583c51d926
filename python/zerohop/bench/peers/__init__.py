"""The peers for host memory; those for GPUs are with their commands."""
