"""`zerohop bench verbs`: bare queue pairs of two processes, by zh.verbs, from C++, and by perftest."""
