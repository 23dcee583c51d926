"""`zerohop top`: what processes that tell their counters are doing now."""
