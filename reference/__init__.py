"""What is right: the data model, the query algebra, the DuckDB oracle, and the promises.

Nothing here knows of Spark, nor of any implementation under test.
"""

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
from reference.oracle import answer_at, append_output, changelog, snapshots
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
