"""Laws that need no oracle: what must not change an answer, and what answers owe each other.

The oracle could be wrong in the same way as an implementation. These tests ask nobody: they run the
operators twice, or on two queries, and compare. Each law names the bugs that it is there for.

- *the way it arrives* (other cuts into steps, one input before the other, other watermarks, with
  and without punctuations, restarts): state that is purged too early, timers that fire out of
  order, what a checkpoint forgets.
- *the way it is written* (time shifted, values renamed, a stream split and united again): times
  before 1970, hashes and orders that leak into answers.
- *algebra* (a window without end, minus and intersect, distinct twice, union and back): counts
  that are off by one copy, duplicates that are lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from properties import profiles
from properties.compare import difference, summed
from properties.strategies import batchings, cases, disordered, inputs, queries, runs, streams
from reference.case import Case, Change
from reference.expressions import col
from reference.query import Query, Source, Windowed, count, max_, walk
from reference.streams import Element, Punctuation, Stream, StreamTuple, Watermark
from reference.types import Row, Value
from reference.windows import Range, Rows, Unbounded, Window
from spark_impl.inprocess import run

LAW = profiles.share(0.15)

KEYED = Source("S", "k bigint", "v string")
OTHER = Source("R", "k bigint", "v string")


def changes(case: Case) -> list[Change]:
    """All that comes out, over all steps."""
    return [Change(*entry) for step in run(case) for entry in step.changes]


def assert_same(query: Query, one: Iterable[Change], other: Iterable[Change]) -> None:
    """At every instant the two changelogs add up to the same answer."""
    left, right = list(one), list(other)
    for instant in sorted({change.ts for change in left + right}):
        answers = (summed(own, instant) for own in (left, right))
        lost, won = difference(query, *(bag.elements() for bag in answers))
        assert not lost, (instant, lost)
        assert not won, (instant, won)


def decided(query: Query) -> bool:
    """Whether the query leaves nothing open; what is left open may turn out otherwise."""
    return not query.free


def without(case: Case, kind: type[Element]) -> Case:
    """The case, in one step, without the elements of a kind."""
    kept = {
        name: stream.with_elements(e for e in stream.elements if not isinstance(e, kind))
        for name, stream in case.streams.items()
    }
    return replace(case, streams=kept, steps=(), restarts=())


# --- the way it arrives ---------------------------------------------------------------------------


@LAW
@given(st.data())
def test_other_steps_change_nothing(data: st.DataObject) -> None:
    case = data.draw(runs(queries(2).filter(decided)))
    cut = replace(case, steps=data.draw(batchings(case.streams)), restarts=())
    assert_same(case.query, changes(replace(case, steps=(), restarts=())), changes(cut))


@LAW
@given(runs(queries(2).filter(decided)))
def test_one_input_after_the_other_changes_nothing(case: Case) -> None:
    names = list(case.streams)
    for order in (names, names[::-1]):
        steps = tuple({name: len(case.streams[name].elements)} for name in order)
        one_by_one = replace(case, steps=steps, restarts=())
        assert_same(case.query, changes(replace(case, steps=(), restarts=())), changes(one_by_one))


@LAW
@given(runs(queries(2).filter(decided)))
def test_watermarks_that_are_kept_change_nothing(case: Case) -> None:
    assert_same(case.query, changes(without(case, Watermark)), changes(case))


@LAW
@given(runs(queries(2).filter(decided)))
def test_punctuations_that_are_kept_change_nothing(case: Case) -> None:
    assert_same(case.query, changes(without(case, Punctuation)), changes(case))


@LAW
@given(runs(queries(2).filter(decided)))
def test_restarts_change_nothing_at_all(case: Case) -> None:
    assume(case.steps)
    plain = run(replace(case, restarts=()))
    for again in (run(case), run(case, restart_always=True)):
        for one, other in zip(plain, again, strict=True):
            assert Counter(one.changes) == Counter(other.changes)
            assert one.watermark == other.watermark


# --- the way it is written ------------------------------------------------------------------------


def moved(case: Case, shift: int) -> Case:
    def element(each: Element) -> Element:
        return replace(each, ts=each.ts + shift)

    streams_ = {
        name: stream.with_elements(map(element, stream.elements))
        for name, stream in case.streams.items()
    }
    return replace(case, streams=streams_)


@LAW
@given(runs(queries(2).filter(decided)), st.sampled_from([1, -1, -7, 1000, -(10**6), 10**12]))
def test_time_has_no_origin(case: Case, shift: int) -> None:
    times = [e.ts for stream in case.streams.values() for e in stream.elements]
    assume(all(abs(ts) < 2**60 for ts in times))
    windows = [n.window for n in walk(case.query) if isinstance(n, Windowed)]
    assume(all(not isinstance(w, Range) or w.length < 2**60 for w in windows))
    later = [replace(change, ts=change.ts - shift) for change in changes(moved(case, shift))]
    assert_same(case.query, changes(case), later)


def renamable(window: Range | Unbounded) -> list[Query]:
    """Queries that only ask which values are equal, so that their names mean nothing."""
    left, right = KEYED.window(window), OTHER.window(Range(4))
    renamed = right.select("k", w=col("v"))
    return [
        left.minus(right),
        left.intersect(right),
        left.union(right).distinct(),
        left.join(renamed, on="k"),
        left.group_by("v", n=count()),
    ]


@LAW
@given(st.data())
def test_the_names_of_values_mean_nothing(data: st.DataObject) -> None:
    query = data.draw(st.sampled_from(renamable(Range(5))))
    streams_ = data.draw(inputs(query))
    forth = {0: 7, 1: 0, 2: -1, -1: 2, 3: 1, 7: 3}
    words = {"a": "zz", "b": "a", "": "b", "A": ""}

    names: dict[Value, Value] = {**forth, **words}

    def new(value: Value) -> Value:
        return names.get(value, value)

    def renamed(row: Row) -> Row:
        return tuple(map(new, row))

    values = {v for s in streams_.values() for t in s.tuples() for v in t.row}
    assume(len({new(v) for v in values}) == len(values))
    other = {
        name: stream.with_elements(StreamTuple(t.ts, renamed(t.row)) for t in stream.tuples())
        for name, stream in streams_.items()
    }
    counted = query.op == "group_by"
    before = [
        replace(c, row=(new(c.row[0]), *c.row[1:]) if counted else renamed(c.row))
        for c in changes(Case(streams_, query))
    ]
    assert_same(query, before, changes(Case(other, query)))


@LAW
@given(disordered(streams(KEYED.columns)), st.sampled_from([Range(5), Range(0, "[]"), Unbounded()]))
def test_a_stream_split_in_two_and_united_is_whole(
    stream: Stream, window: Range | Unbounded
) -> None:
    elements = stream.elements
    halves = {
        "S": stream.with_elements(elements[::2]),
        "R": stream.with_elements(elements[1::2]),
    }
    whole = KEYED.window(window)
    united = whole.union(OTHER.window(window))
    for above in (_itself, _distinct, _counted):
        assert_same(
            above(whole),
            changes(Case({"S": stream}, above(whole))),
            changes(Case(halves, above(united))),
        )


def _itself(query: Query) -> Query:
    return query


def _distinct(query: Query) -> Query:
    return query.distinct()


def _counted(query: Query) -> Query:
    return query.group_by("k", n=count(), top=max_("v"))


# --- algebra --------------------------------------------------------------------------------------


@LAW
@given(cases(queries(1).filter(decided)))
def test_a_window_that_never_ends_is_no_window(case: Case) -> None:
    times = [t.ts for stream in case.streams.values() for t in stream.tuples()]
    assume(all(abs(ts) < 2**60 for ts in times))

    def with_window(query: Query, window: Range | Unbounded) -> Query:
        if isinstance(query, Windowed):
            return query if isinstance(query.window, Rows) else replace(query, window=window)
        fields = {
            name: with_window(value, window)
            if isinstance(value, Query)
            else tuple(with_window(v, window) if isinstance(v, Query) else v for v in value)
            if isinstance(value, tuple)
            else value
            for name, value in vars(query).items()
            if name not in ("columns", "free")
        }
        return type(query)(**fields)

    endless = with_window(case.query, Unbounded())
    long = with_window(case.query, Range(2**62))
    seen = [c for c in changes(replace(case, query=long)) if c.ts < 2**61]
    assert_same(case.query, changes(replace(case, query=endless)), seen)


def pairs() -> st.SearchStrategy[tuple[Query, Query]]:
    """Two windows over streams with the same columns."""
    some: list[Window] = [Range(5), Range(2), Range(0, "[]"), Rows(2), Unbounded()]
    windows = st.sampled_from(some)
    return st.tuples(windows.map(KEYED.window), windows.map(OTHER.window))


@LAW
@given(st.data())
def test_minus_and_intersect_share_out_the_left(data: st.DataObject) -> None:
    left, right = data.draw(pairs())
    streams_ = data.draw(inputs(left.union(right)))
    parts = [
        change
        for query in (left.minus(right), left.intersect(right))
        for change in changes(Case(streams_, query))
    ]
    assert_same(left, changes(Case(streams_, left)), parts)


@LAW
@given(st.data())
def test_union_and_then_minus_gives_back_the_first(data: st.DataObject) -> None:
    left, right = data.draw(pairs())
    streams_ = data.draw(inputs(left.union(right)))
    back = left.union(right).minus(right)
    assert_same(left, changes(Case(streams_, left)), changes(Case(streams_, back)))


@LAW
@given(cases(queries(2).filter(decided)))
def test_distinct_twice_is_distinct_once(case: Case) -> None:
    once = case.query.distinct()
    assert_same(
        once,
        changes(replace(case, query=once)),
        changes(replace(case, query=once.distinct())),
    )


@LAW
@given(st.data())
def test_minus_itself_is_nothing_and_intersect_itself_is_itself(data: st.DataObject) -> None:
    case = data.draw(cases(queries(1).filter(decided)))
    query = case.query
    assert_same(query, changes(replace(case, query=query.minus(query))), [])
    assert_same(query, changes(case), changes(replace(case, query=query.intersect(query))))


# --- the laws can fail ----------------------------------------------------------------------------


def test_a_difference_is_seen() -> None:
    query = KEYED.window(Range(5))
    one = [Change(0, 1, (1, "a")), Change(5, -1, (1, "a"))]
    with pytest.raises(AssertionError):
        assert_same(query, one, [Change(0, 1, (1, "a")), Change(6, -1, (1, "a"))])
    with pytest.raises(AssertionError):
        assert_same(query, one, [*one, Change(0, 1, (1, "a")), Change(1, -1, (1, "a"))])
