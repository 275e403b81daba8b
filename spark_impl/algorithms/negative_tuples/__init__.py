"""Pipelines of window operators that expire tuples by input or by negative tuples (paper 004).

| approach | how an operator learns that a tuple has expired |
|---|---|
| `ita`, input-triggered | from the time of the next tuple that reaches it; answers come late |
| `nta`, negative tuples | EXPIRE sends the tuple again, with a minus sign, up the pipeline |
| `join-messages` | the same, but a join sends one message for all that a tuple had joined with |
| `piggybacking` | by negative tuples, or by a flag on the next tuple if they still wait then |

>>> from reference import Range
>>> pipeline = Pipeline("nta")
>>> leaf = pipeline.expire(0, Range(5))
>>> pipeline.recipient(pipeline.add(WDistinct(), leaf))
>>> pipeline.arrive(0, 1, (7,)), pipeline.arrive(0, 3, (7,))
([Change(ts=1, sign=1, row=(7,))], [])
>>> [(c.ts, c.sign) for c in pipeline.advance(8)]
[(6, -1), (6, 1), (8, -1)]
"""

from spark_impl.algorithms.negative_tuples.operators import (
    WDistinct,
    WGroupBy,
    WindowOperator,
    WIntersect,
    WJoin,
    WMinus,
    WProject,
    WSelect,
    WUnion,
)
from spark_impl.algorithms.negative_tuples.pipeline import APPROACHES, Pipeline

__all__ = [
    "APPROACHES",
    "Pipeline",
    "WDistinct",
    "WGroupBy",
    "WIntersect",
    "WJoin",
    "WMinus",
    "WProject",
    "WSelect",
    "WUnion",
    "WindowOperator",
]
