"""`zerohop bench gda`: kernels of two processes that communicate, next to NVSHMEM's."""
