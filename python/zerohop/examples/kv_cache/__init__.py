"""A paged KV cache between two processes, as servers of language models have it that prefill here and decode there.

Rank 1, the prefill side, has computed the blocks of all prompts. Rank 0, the decode side, asks for a request by a message
that names blocks of its own cache, and the prefill side writes the request's blocks there, in all layers, with one call and
one notification. Both sides are coroutines, a lane for each request that may be under way.

cache.py has the cache and what is in it, plan.py the requests and their block tables, decode.py and prefill.py the two sides,
rank.py what each rank does, report.py what is told of it.
"""
