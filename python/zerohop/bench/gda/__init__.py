"""`zerohop bench gda`: kernels that communicate by themselves, of two processes, beside NVSHMEM's."""
