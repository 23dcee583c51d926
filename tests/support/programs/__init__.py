"""Random programs of collectives: what they are, what NumPy makes of them, and processes that carry them out."""
