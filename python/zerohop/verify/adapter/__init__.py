"""`zerohop verify --adapter`: what an RDMA device can do, one step after the other, as a report to be pasted."""
