"""What an Endpoint is given: devices, numbers that tune it, faults on purpose, headers for kernels."""
