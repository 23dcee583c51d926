"""The multi-matrix-vector product service of the talk on GPUrdma (Daoud, Watad, Silberstein; ROSS 2016).

Rank 0, the client, sends batches of vectors; the other ranks, the servers, share each batch, multiply every vector of it
by a matrix of its own and put the products back. A server is driven by its CPU (``host``) or is one kernel that runs
throughout, is notified, multiplies and answers by itself (``kernel``).

problem.py has the numbers, plan.py what lies where, host.py and kernel.py the two ways of client and server behind the face
in face.py, lanes.py what the blocks of both kernels have to do, matvec.cu the kernels, rank.py what each rank does.
"""
