"""Virtual machines with Soft-RoCE: a Linux kernel under QEMU that runs the programs of this host."""
