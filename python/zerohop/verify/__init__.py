"""`zerohop verify`: patterns written and read back between two processes, as a memory tester does."""
