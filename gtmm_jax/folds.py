"""The numbers that random keys are folded with, in one table.

`jax.random.fold_in(parent, number)` gives each use of a parent key a key of its
own, as long as no two uses share a number. Numbers that only count (rooms,
windows, recorded episodes, a classifier's steps) start at 0 and share their
parent with no number of this table.

This module imports nothing, so that tasks, models and programs can share it.
"""

# The key of a seed. Replica r has number r, from 0 on, and SECOND_TRIES + r
# where it is trained again after a failure.
SECOND_TRIES = 2**31
WINDOWS = 2**32 - 1

# The key of a replica, or of a run of the copy task. Training step s has number
# s, from 1 on.
INIT = 0
DREAMS = 2**31 - 3
HELD_OUT = 2**31 - 2
DRAWING = 2**31 - 1
# Batch b of an evaluation has number EVALUATION + b.
EVALUATION = 2**31

# The key of a batch, which `Problem.draw` splits in two: some generators make
# the children of a split as if folded with 0 and 1.
WITHOUT_REPEATS = 2
TIGHTER_BOUNDS = 3
