"""Parameters of a model, pushed by the rank that trains it to all others, version by version.

Every reader has two copies of the model. The trainer writes a version into the one that nobody uses and notifies behind it,
so a reader never sees half of a version; it uses what it has while the next one comes, and says when it has gone over. A
reader that dies is dropped, and the others go on.

plan.py has the parameters and what they must be, model.py the model that is trained (PyTorch's, or NumPy arrays),
trainer.py and reader.py either side, rank.py what each rank does, report.py the table.
"""
