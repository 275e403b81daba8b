"""Wrong operators, to measure the suite with: each is a few lines, and its docstring its defect.

A mutant breaks one level of one operator, the way a real engine or a paper's naive algorithm broke
it. `hunt` looks for each with the cases that `tickproof check` generates; one that survives shows a
hole in the suite.
"""

from conformance.mutants.registry import Mutant, all_mutants, mutant

__all__ = ["Mutant", "all_mutants", "mutant"]
