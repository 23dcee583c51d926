"""Why no virtual machine can be had, in one sentence that says what to do."""


class Unavailable(RuntimeError):
    """QEMU, the kernel or a tool is missing."""
