"""Planners: what an algorithm will cost, before it runs.

Pure functions over statistics of streams; each module follows one paper (`../../docs/algorithms.md`
names them). Costs are counts of work per unit of time, so they do not depend on a machine.
"""
