"""Exchange arrays between processes over RDMA queue pairs, on any machine."""

__version__ = "0.1.0"
