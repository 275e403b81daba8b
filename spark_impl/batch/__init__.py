"""The operators on DataFrames that are complete.

`lifetimes` is what an answer is here: rows with the time when they come and the time when they go.
`operators` has the operators. Most are `stages`, the columnar step functions inside Spark's tasks;
where plain SQL does the same faster it is used instead (`near`, `spells`). `subquery` puts SQL
together, so that a query of many operators is given to Spark in one piece.
"""
