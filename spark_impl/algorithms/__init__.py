"""The papers' algorithms, tuple by tuple, each under the name its paper gives it.

They take tuples in the order of their times (`base.TupleAtATime`), say what they make of them, and
count their own work, so that the papers' claims can be checked in units that do not depend on a
machine. `driver.StepDriver` runs any of them as a step function. See `docs/algorithms.md`.
"""
