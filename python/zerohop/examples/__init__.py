"""Programs to copy from: each is one file that starts its own ranks, or runs under torchrun, mpirun or srun, and checks its result.

``python -m zerohop.examples.numpy_only``: the smallest; NumPy only.
``python -m zerohop.examples.cg``: the conjugate gradient method, with sums by all_reduce; NumPy only.
``torchrun --nproc-per-node 2 -m zerohop.examples.ddp``: a model trained by DistributedDataParallel; only torchrun starts it.
``torchrun --nproc-per-node 2 -m zerohop.examples.fsdp2``: the same by fully_shard (FSDP2).
``torchrun --nproc-per-node 2 -m zerohop.examples.dtensor``: a product of matrices that lie on several ranks.
``python -m zerohop.examples.halo``: an array split by columns, whose halos are written in place; CuPy on GPUs, else NumPy.
``python -m zerohop.examples.stencil``: an array split by rows; a launch for each step, or one kernel that exchanges halos.
``python -m zerohop.examples.matvec``: a service that multiplies vectors by matrices; its host answers, or its kernel.
``python -m zerohop.examples.kv_cache``: blocks of a paged KV cache, from a prefill to a decode process, in asyncio.
``python -m zerohop.examples.weights``: parameters of a model, pushed to many readers, version by version; one may die.
``python -m zerohop.examples.jax_handoff``: arrays of JAX, bfloat16 too, which another process reads in place.
``python -m zerohop.examples.osu``: latency and bandwidth, as a table in the format of the OSU micro-benchmarks.
``python -m zerohop.examples.ray_actors``: Ray actors that hold a World; only Ray starts them.

They use GPUs if there are any and their framework is installed; ``CUDA_VISIBLE_DEVICES=`` prevents that.
"""
