"""The settings of an Endpoint: devices, knobs, injected faults; and the headers for kernels."""
