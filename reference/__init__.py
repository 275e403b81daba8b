"""What is right: the data model, the query algebra, the DuckDB oracle, and the promises.

Nothing here knows of Spark, nor of any implementation under test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reference.aggregates import Aggregate, register
from reference.case import AppendRow, Case, Change
from reference.caseformat import (
    case_from_json,
    case_to_json,
    dump_case,
    load_case,
    query_from_json,
    query_to_json,
)
from reference.clock import MAX_TIME, MIN_TIME, NEVER
from reference.errors import CaseError, QueryError, TickproofError
from reference.expressions import Call, Col, Expr, Lit, col, lit
from reference.lanes import format_case_lanes, format_lanes, parse_lanes
from reference.query import (
    Distinct,
    GroupBy,
    Intersect,
    Join,
    Minus,
    Project,
    Query,
    Select,
    Source,
    Union,
    Windowed,
    WindowJoin,
    Within,
    avg,
    count,
    max_,
    median,
    min_,
    stddev,
    sum_,
    user,
    window_join,
)
from reference.streams import (
    Between,
    Column,
    Constant,
    Nothing,
    OneOf,
    Punctuation,
    Stream,
    StreamTuple,
    Watermark,
    Wildcard,
    columns,
)
from reference.types import Type
from reference.windows import Range, Rows, Unbounded

if TYPE_CHECKING:
    from reference.oracle import answer_at, append_output, changelog, snapshots

__all__ = [
    "MAX_TIME",
    "MIN_TIME",
    "NEVER",
    "Aggregate",
    "AppendRow",
    "Between",
    "Call",
    "Case",
    "CaseError",
    "Change",
    "Col",
    "Column",
    "Constant",
    "Distinct",
    "Expr",
    "GroupBy",
    "Intersect",
    "Join",
    "Lit",
    "Minus",
    "Nothing",
    "OneOf",
    "Project",
    "Punctuation",
    "Query",
    "QueryError",
    "Range",
    "Rows",
    "Select",
    "Source",
    "Stream",
    "StreamTuple",
    "TickproofError",
    "Type",
    "Unbounded",
    "Union",
    "Watermark",
    "Wildcard",
    "WindowJoin",
    "Windowed",
    "Within",
    "answer_at",
    "append_output",
    "avg",
    "case_from_json",
    "case_to_json",
    "changelog",
    "col",
    "columns",
    "count",
    "dump_case",
    "format_case_lanes",
    "format_lanes",
    "lit",
    "load_case",
    "max_",
    "median",
    "min_",
    "parse_lanes",
    "query_from_json",
    "query_to_json",
    "register",
    "snapshots",
    "stddev",
    "sum_",
    "user",
    "window_join",
]


def __getattr__(name: str) -> Any:
    if name in ("answer_at", "append_output", "changelog", "snapshots"):
        # Late, because whoever needs nothing but the data model needs no DuckDB.
        from reference import oracle

        return getattr(oracle, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
