"""Queries, windows, times and rows as short text that a person can read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from reference.clock import MIN_TIME, NEVER
from reference.expressions import Call, Expr
from reference.lanes import format_row
from reference.query import (
    Distinct,
    GroupBy,
    Join,
    Project,
    Query,
    Select,
    Windowed,
    WindowJoin,
)
from reference.streams import Column, Punctuation, StreamTuple, Watermark
from reference.types import Row
from reference.windows import Range, Rows, Window

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_MEANINGS = {
    "window": "the tuples that are live",
    "select": "the live rows for which the predicate is true",
    "project": "the chosen columns of the live rows, duplicates kept",
    "join": "all combinations of live rows that match",
    "union": "the live rows of both sides together (UNION ALL)",
    "intersect": "the live rows that both sides have, copy for copy (INTERSECT ALL)",
    "minus": "the live rows of the left side, less one copy for each live copy on the right "
    "(EXCEPT ALL)",
    "distinct": "one of each live row",
    "group_by": "one row for each group that has a live row",
    "window_join": "all combinations of tuples so far that match and are close enough in time",
}


def printable(text: str) -> str:
    r"""Text that is safe to print and to encode: controls and half surrogates are escaped.

    >>> printable("a\x1b[31mb\nc")
    'a\\x1b[31mb\\nc'
    """
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if character == "\xa0":
        return " "
    return character.encode("unicode_escape").decode()


def printable_lines(text: str) -> str:
    """Text of several lines, each safe to print."""
    return "\n".join(printable(line) for line in text.split("\n"))


def clip(text: str, width: int, ellipsis: str = "…") -> str:
    """Cut text to a width.

    >>> clip("abcdefgh", 5), clip("abc", 5)
    ('abcd…', 'abc')
    """
    if len(text) <= width:
        return text
    return text[: max(0, width - len(ellipsis))] + ellipsis[:width]


# --- times and rows -------------------------------------------------------------------------------


def time_text(instant: int) -> str:
    """An instant; near the ends of 64 bits as a distance from the end.

    >>> time_text(7), time_text(-(2**63) + 3), time_text(2**63 - 2), time_text(2**63 - 1)
    ('7', '-2^63+3', '2^63-2', 'never')
    """
    if instant == NEVER:
        return "never"
    if instant - MIN_TIME < 1_000_000:
        past = instant - MIN_TIME
        return f"-2^63+{past}" if past else "-2^63"
    if NEVER - instant < 1_000_000:
        return f"2^63-{NEVER + 1 - instant}"
    return str(instant)


def axis_texts(times: Sequence[int]) -> tuple[int, list[str]]:
    """Short labels for the marks of a time axis, and the origin they count from (0: plain times).

    Times of an epoch have sixteen digits that are almost the same; their distances are readable.

    >>> axis_texts([1, 20])
    (0, ['1', '20'])
    >>> axis_texts([1_700_000_000_000_000, 1_700_000_000_000_250])
    (1700000000000000, ['+0', '+250'])
    """
    plain = [time_text(t) for t in times]
    if max(map(len, plain), default=0) <= 8:
        return 0, plain
    distances = [f"+{t - times[0]}" for t in times]
    shorter = max(map(len, distances)) < max(map(len, plain))
    return (times[0], distances) if shorter else (0, plain)


def row_text(row: Row, columns: Sequence[Column]) -> str:
    """A row as lanes write it; a row that does not fit its columns as Python does."""
    try:
        return format_row(row, columns)
    except (ValueError, TypeError, AttributeError, StopIteration):
        return printable(repr(row))


# --- windows and queries --------------------------------------------------------------------------


def name_text(name: str) -> str:
    """A name as it is if it is a plain word, else quoted."""
    return name if _WORD.fullmatch(name) else json.dumps(name)


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(name_text, names))


def columns_text(columns: Sequence[Column]) -> str:
    """Columns as lanes declare them."""
    return ", ".join(f"{name_text(c.name)} {c.type}" for c in columns)


def window_text(window: Window) -> str:
    """A window in a few words.

    >>> window_text(Range(5, "[]")), window_text(Rows(3, ("k",)))
    ('range 5, both ends', 'rows 3 per k')
    """
    match window:
        case Range(length, bounds):
            return f"range {length}, both ends" if bounds == "[]" else f"range {length}"
        case Rows(count, partition_by, order_by):
            text = f"rows {count}"
            if partition_by:
                text += f" per {_list(partition_by)}"
            return text + (f" order by {_list(order_by)}" if order_by else "")
        case _:
            return "unbounded"


def window_meaning(window: Window) -> str:
    """When a tuple is live, as the specification writes it.

    >>> window_meaning(Range(6)), window_meaning(Range(0, "[]"))
    ('live while ts <= T < ts + 6', 'live while T = ts')
    """
    match window:
        case Range(0):
            return "live while T = ts"
        case Range(length, bounds):
            return f"live while ts <= T {'<=' if bounds == '[]' else '<'} ts + {length}"
        case Rows(count, partition_by, _):
            where = f" of its {_list(partition_by)}" if partition_by else ""
            return f"live while among the {'' if count == 1 else f'{count} '}newest{where}"
        case _:
            return "live from ts on, for ever"


def query_meaning(query: Query) -> str:
    """What the answer is, as the rest of the sentence "the answer at an instant is ..."."""
    if isinstance(query, Distinct) and query.on:
        return f"one live row, any, for each {_list(query.on)}"
    if isinstance(query, GroupBy) and not query.keys:
        return "one row, computed over all live rows"
    return _MEANINGS[query.op]


def query_text(query: Query) -> str:
    """A query as one line.

    >>> from reference import Range, Source
    >>> s, r = (Source(name, "v bigint").window(Range(5)) for name in "SR")
    >>> query_text(s.minus(r))
    'minus(S[range 5], R[range 5])'
    """
    return printable(_query(query))


def _query(query: Query) -> str:
    match query:
        case Windowed(source, window):
            return f"{name_text(source.name)}[{window_text(window)}]"
        case Select(below, predicate):
            return f"select({_query(below)} where {_bare(predicate)})"
        case Project(below, items):
            made = ", ".join(
                name_text(name) if str(expr) == name else f"{name_text(name)} = {_bare(expr)}"
                for name, expr in items
            )
            return f"project({_query(below)} to {made})"
        case Join(inputs, on, theta):
            return f"join({', '.join(map(_query, inputs))}{_condition(on, theta)})"
        case Distinct(below, on):
            return f"distinct({_query(below)}{f' on {_list(on)}' if on else ''})"
        case GroupBy(below, keys, aggregates):
            by = f" by {_list(keys)}" if keys else ""
            made = f": {', '.join(map(str, aggregates))}" if aggregates else ""
            return f"group_by({_query(below)}{by}{made})"
        case WindowJoin():
            return _window_join(query)
        case _:
            return f"{query.op}({', '.join(map(_query, query.children))})"


def _window_join(query: WindowJoin) -> str:
    inputs = ", ".join(
        name_text(alias) if alias == source.name else f"{name_text(alias)} = {source.name}"
        for alias, source in query.inputs
    )
    arrow = "->" if query.directed else "~"
    pairs = "".join(
        f", {name_text(w.first)} {arrow} {name_text(w.second)} within {w.length}"
        for w in query.within
    )
    return f"window_join({inputs}{pairs}{_condition(query.on, query.theta)})"


def _condition(on: Sequence[str], theta: Expr | None) -> str:
    text = f" on {_list(on)}" if on else ""
    return text + (f" where {_bare(theta)}" if theta is not None else "")


def _bare(expr: Expr) -> str:
    """An expression without the brackets around the whole of it."""
    text = str(expr)
    whole = isinstance(expr, Call) and text.startswith("(") and text.endswith(")")
    return text[1:-1] if whole else text


# --- promises -------------------------------------------------------------------------------------


def promise_meaning(promise: Punctuation | Watermark) -> str:
    """What a promise says."""
    if isinstance(promise, Watermark):
        return f"no tuple at or before {time_text(promise.ts)} comes any more"
    return f"no tuple that matches it has a time after {time_text(promise.ts)}"


def late_reason(promise: Punctuation | Watermark, promise_text: str) -> str:
    """Why a tuple was dropped."""
    return f"late: {promise_text} had promised that {promise_meaning(promise)}"


def broken_reason(witness: StreamTuple, witness_text: str) -> str:
    """Why a promise was ignored."""
    return f"false when it was made: {witness_text} had already arrived"
