"""Programs to copy: each is one file that starts its own ranks, or is started by torchrun, mpirun or srun, and checks its result.

``python -m zerohop.examples.numpy_only``: the smallest; NumPy alone.
``python -m zerohop.examples.halo``: an array split by columns, whose halos are written as they lie; CuPy on GPUs, else NumPy.
``python -m zerohop.examples.stencil``: an array split by rows; a launch for each step, or one kernel that exchanges halos.
``python -m zerohop.examples.matvec``: a service that multiplies vectors by matrices; its host answers, or its kernel.
``python -m zerohop.examples.kv_cache``: blocks of a paged KV cache, from a prefill to a decode process, in asyncio.
``python -m zerohop.examples.weights``: parameters of a model, pushed to many readers, version by version; one may die.
``python -m zerohop.examples.jax_handoff``: arrays of JAX, bfloat16 too, which another process reads where they were written.
``python -m zerohop.examples.osu``: latency and bandwidth, as a table in the format of OSU's micro-benchmarks.
``python -m zerohop.examples.ray_actors``: actors of Ray that hold a World; it is started by Ray alone.

On a machine with GPUs they use these, where the framework for that is installed; ``CUDA_VISIBLE_DEVICES=`` keeps them off.
"""
