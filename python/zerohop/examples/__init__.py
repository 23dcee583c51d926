"""Programs to run and to read, each with a check of every result against a reference computed apart.

``python -m zerohop.examples.matvec``: a service that multiplies vectors by matrices, as host-driven server and as a
persistent kernel that is notified and answers by itself.
``python -m zerohop.examples.stencil``: the heat equation in rows of ranks, with a launch for each step and as one kernel
that exchanges halos from inside.
``python -m zerohop.examples.kv_cache``: blocks of a paged KV cache, asked for by one process and written by another, in
asyncio.
``python -m zerohop.examples.osu``: latency and bandwidth between two ranks, in the format of the OSU micro-benchmarks.
``python -m zerohop.examples.weights``: parameters of a model, pushed to many readers, version by version; PyTorch, or NumPy
without it.
``python -m zerohop.examples.halo``: an array split by columns, whose halos are written as they lie; CuPy on GPUs, else NumPy.
``python -m zerohop.examples.jax_handoff``: arrays of JAX, bfloat16 too, which another process reads where they were written.
``python -m zerohop.examples.numpy_only``: the smallest, of NumPy alone.
``python -m zerohop.examples.ray_actors``: actors of Ray that hold a World, which they find each other for by an actor.

Each starts its ranks itself, or is started by torchrun or mpirun, where mpi4py is installed; but ray_actors by Ray.
"""
