"""The papers' algorithms behind the public operators: chosen, refused, run, counted and judged."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from conformance.adapters import AdapterError, open_adapter
from conformance.algorithms import Use, algorithm_names, situation_of
from conformance.check import check, check_cases
from conformance.own_engines import InProcess
from conformance.spark_engines import SparkBatch
from conformance.spark_streaming import SparkStreaming
from conformance.tests.operators.algorithm_adapter import joined_windows, runs
from conformance.tests.operators.fake_spark import FakeStage
from conformance.tests.operators.frames import Data
from conformance.tests.operators.test_streaming_stage import (
    CASES,
    Entry,
    batch_of,
    entries,
    net,
    plan_query,
    random_batches,
    spec_of,
)
from reference import QueryError, Range, Rows, Source, Unbounded, parse_lanes
from reference import count as count_rows
from reference.query import GroupBy, Query, Union, WindowJoin, Within
from reference.windows import Window
from spark_impl import Algorithm, Statistics, count, measure, window_join
from spark_impl.algorithms import catalogue
from spark_impl.algorithms.bounds import Constraint
from spark_impl.algorithms.catalogue import ENTRIES, Situation, entries_for
from spark_impl.algorithms.driver import run_all
from spark_impl.algorithms.frozen import FrozenError, frozen, thawed
from spark_impl.algorithms.window_joins import PathWJoin
from spark_impl.choosing import choose
from spark_impl.frame import Frame
from spark_impl.horizon import Horizon
from spark_impl.operators.algorithmic import Prepared
from spark_impl.plan import Plan
from spark_impl.planners.window_joins import NearStream, hash_cost, nested_loops_cost
from spark_impl.relation import Relation
from spark_impl.streaming.carrier import closed_by

TWO = Situation("join", (Range(60_000_000), Range(60_000_000)), keys=1)
DOCS = Path(__file__).parents[3] / "docs" / "algorithms.md"


# --- choosing -------------------------------------------------------------------------------------


def test_no_algorithm_unless_asked_for():
    assert choose(None, TWO, None) is None


@pytest.mark.parametrize("operator", catalogue.OPERATORS)
def test_an_unknown_name_is_refused_with_those_that_there_are(operator):
    with pytest.raises(QueryError, match="there is no algorithm 'quick'") as error:
        choose("quick", Situation(operator), None)
    for entry in entries_for(operator):
        assert entry.name in str(error.value)


@pytest.mark.parametrize(
    ("asked", "situation", "why"),
    [
        ("mw", TWO, "no algorithm 'mw' here; use one of auto, hhj"),
        ("hhj", Situation("join", (Range(5),) * 3, 1), "it joins 2 inputs, not 3"),
        ("hhj", Situation("join", (Range(5), None), 1), "windows of streams"),
        ("hnj", Situation("join", (Range(5), Rows(3)), 1), "windows go by time here"),
        ("hhj", Situation("join", (Range(5), Range(5))), "it needs on= columns"),
        ("eager-nlj", Situation("join", (Range(5), Range(5)), 2), "it compares 1 column, not 2"),
        ("eager-nlj", Situation("join", (Rows(3, ("k",)), Range(5)), 1), "must not have partition"),
        ("lazy-nlj", TWO, "give tau="),
        (Algorithm("lazy-nlj", tau=5, order=(0, 0)), TWO, "does not name each of 2 streams once"),
        (Algorithm("hhj", tau=5), TWO, "option 'tau' is not known"),
        (Algorithm("hhj", invalidation="never"), TWO, "use active or lazy"),
        (Algorithm("hhj", shares=(2, 1)), TWO, "shares are from 0 to 1"),
        ("pjoin", TWO, "it has no windows"),
        ("ita", Situation("join", (Range(5),) * 3, 1), "it joins 2 inputs"),
        (7, TWO, "give a name, 'auto', or Algorithm"),
    ],
)
def test_what_an_algorithm_cannot_do_is_refused_at_once(asked, situation, why):
    with pytest.raises(QueryError, match=why):
        choose(asked, situation, None)


@pytest.mark.parametrize(
    ("asked", "pairs", "why"),
    [
        ("mw", [Constraint(0, 1, 5), Constraint(1, 2, 4)], "one window for all pairs"),
        ("mw", [Constraint(0, 1, 5, True)], "undirected"),
        ("path", [Constraint(0, 1, 5)], "directed=True"),
        ("path", [Constraint(0, 2, 5, True), Constraint(1, 2, 5, True)], "each input and the next"),
    ],
)
def test_window_joins_that_do_not_fit(asked, pairs, why):
    many = 1 + max(pair.second for pair in pairs)
    situation = Situation("window_join", (Unbounded(),) * many, 1, tuple(pairs))
    with pytest.raises(QueryError, match=why):
        choose(asked, situation, None)


def test_auto_without_statistics_keeps_the_step_functions():
    choice = choose("auto", TWO, None)
    assert choice is not None
    assert choice.algorithm is None
    assert "without statistics= there are no costs" in choice.text


@pytest.mark.parametrize(("rate", "expected"), [(10, "hhj"), (100, "hnj")])
def test_auto_takes_the_cheapest_join_of_two(rate, expected):
    """002: with ten keys nested loops win from 6.7 times the rate on."""
    choice = choose("auto", TWO, [Statistics(10, 10), Statistics(rate, 10)])
    assert choice is not None
    assert choice.algorithm == Algorithm(expected)
    assert choice.taken is not None
    costs = [offer.cost or 0 for offer in choice.rejected]
    assert len(costs) == 3
    assert min(costs) > (choice.taken.cost or 0) > 0


def test_auto_orders_a_join_of_many():
    """003, table 5: the order 1, 2, 3, 4 is best for nested loops, and hashing is cheaper still."""
    windows = tuple(Range(w * 1_000_000) for w in (100, 100, 200, 100))
    table = [Statistics(10, 500), Statistics(1, 50), Statistics(1, 40), Statistics(3, 5)]
    choice = choose("auto", Situation("join", windows, 1), table)
    assert choice is not None
    assert choice.algorithm is not None
    assert choice.algorithm.name == "hash-join"
    nested = [
        o for o in choice.rejected if o.algorithm == Algorithm("eager-nlj", order=(0, 1, 2, 3))
    ]
    assert [round(o.cost or 0) for o in nested] == [16_000]


def test_auto_never_takes_what_answers_late():
    choice = choose("auto", Situation("distinct", (None,)), Statistics(10))
    assert choice is not None
    assert choice.algorithm == Algorithm("nta")
    assert "ita 10 (answers late)" in choice.text


def test_costs_are_shown_beside_what_was_asked_for():
    choice = choose("nnj", TWO, [Statistics(10, 10), Statistics(100, 10)])
    assert choice is not None
    first, *others = choice.text.splitlines()
    assert first.startswith("nnj (NNJ, paper 002), as asked; cost ")
    assert [line.split()[1] for line in others] == ["hhj", "hnj", "nhj"]


@pytest.mark.parametrize("wrong", [Statistics(1), [Statistics(1)] * 3, [1, 2]])
def test_statistics_of_each_input(wrong):
    with pytest.raises(QueryError, match="a Statistics for each of its 2 inputs"):
        choose("auto", TWO, wrong)


def test_statistics_that_mean_nothing():
    with pytest.raises(QueryError, match="give one above 0"):
        Statistics(0)
    with pytest.raises(QueryError, match="give 1 or more"):
        Statistics(1, 0)
    with pytest.raises(QueryError, match="goes with algorithm="):
        choose(None, TWO, [Statistics(1)] * 2)


def test_hashing_is_foreseen_to_touch_less_than_scanning():
    from spark_impl.algorithms.bounds import Bounds

    streams = [NearStream(50, 20)] * 3
    bounds = Bounds.single(3, 1.0)
    assert hash_cost(streams, bounds) < nested_loops_cost(streams, bounds) / 10


# --- state ----------------------------------------------------------------------------------------


class _Evil:
    def __reduce__(self):
        return (eval, ("1 + 1",))


def test_only_the_algorithms_own_classes_are_read_back():
    with pytest.raises(FrozenError, match=r"builtins\.eval"):
        thawed(frozen(_Evil(), {}), {})


STAGES = {
    "join": ["hhj", "nnj", "eager-nlj", "hash-join", "pwjoin", "nta", "join-messages", "lazy-nlj"],
    "minus": ["nta", "piggybacking"],
    "distinct": ["nta", "piggybacking"],
    "group by": ["nta", "join-messages"],
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("stage", "name"), [(stage, name) for stage, names in STAGES.items() for name in names]
)
def test_a_stage_of_a_stream_by_an_algorithm(stage: str, name: str, seed: int) -> None:
    """What is lost, restarted and moved to another process changes nothing."""
    query, windows, columns, keys = CASES[stage]
    options = (("tau", 3_000),) if name == "lazy-nlj" else ()
    spec = replace(spec_of(stage), algorithm=Prepared(name, options, tuple(windows)))
    made_by = FakeStage(spec, keys)
    plan = Plan(plan_query(query, windows, columns), "changelog")
    state, dice = plan.initial(), random.Random(f"{stage}/{name}/{seed}")
    found: list[Entry] = []
    right: list[Entry] = []
    closed = None
    for rows, watermark in random_batches(dice, len(windows)):
        arrivals = {stream: batch_of(own) for stream, own in rows.items() if own}
        if dice.random() < 0.3:
            made_by.batch(arrivals, watermark, lost=True)
        if dice.random() < 0.3:
            made_by.restart()
        if dice.random() < 0.4:
            made_by.elsewhere()
        found += entries(made_by.batch(arrivals, watermark))
        frames = {
            f"S{stream}": Frame(
                [pa.array([row[at] for row in fine], pa.int64()) for at in (1, 2)],
                {"ts": np.array([row[0] for row in fine], np.int64)},
                len(fine),
            )
            for stream, own in rows.items()
            for fine in [[row for row in own if closed is None or row[0] > closed]]
        }
        closed = closed_by(watermark)
        state, expected = plan.step(state, frames, Horizon.at(closed))
        right += entries(expected)
        if name != "lazy-nlj":
            assert net(found) == net(right)
    assert net(found) == net(right)
    assert len(net(right)) > 10
    if name != "lazy-nlj":  # which removes what has expired when it is executed the next time
        assert made_by.segments == 0, "all has ended, so nothing is held"


# --- judged ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", algorithm_names())
def test_each_algorithm_conforms_in_process(name):
    """Nested queries, steps and restarts, without Spark; a thousand cases are in the soak."""
    report = check(InProcess(algorithm=name), cases=12, seed=11)
    assert report.conforms, [violation.verdict for violation in report.violations]
    assert report.levels["final"].checked > 0


def query_for(name: str) -> Query:
    """The simplest query that an algorithm can carry out, with all that it is for."""
    entry = catalogue.entry(name)
    if "window_join" in entry.operators:
        inputs = tuple((n, Source(n.upper(), "k bigint", f"{n}v bigint")) for n in "ab")
        return WindowJoin(inputs, (Within("a", "b", 4),), ("k",), None, name == "path")
    if entry.make is None:
        left = joined_windows([Range(5), Range(3)])
        return GroupBy(left, ("k",), (count()("n"),))
    kinds: Sequence[Window] = [Range(5), Range(3, "[]")]
    if name == "pjoin":
        kinds = [Unbounded(), Unbounded()]
    elif entry.inputs is None:
        kinds = [Range(5), Rows(2) if entry.count_based else Range(2), Range(7)]
    return joined_windows(kinds)


def test_every_algorithm_has_a_query():
    for name in algorithm_names():
        query = query_for(name)
        assert Use(name).by(query)(query) is not None, name


FEW = ("hhj", "mw", "piggybacking")
"""All of them go through Spark in `tox -e soak-algorithms`."""


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("name", FEW)
def test_some_cases_through_spark(spark: SparkSession, name):
    cases = runs(query_for(name), 10, 3, output="changelog")
    report = check_cases(SparkBatch(spark, algorithm=name), cases)
    assert report.conforms, [violation.verdict for violation in report.violations]
    assert report.levels["final"].checked == len(cases)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_some_cases_through_a_stream(spark: SparkSession):
    cases = runs(query_for("hhj"), 10, 3, output="append")
    # Restarts are for the long run, and for the stages without Spark.
    cases = [replace(case, restarts=()) for case in cases if case.steps][:6]
    report = check_cases(SparkStreaming(spark, algorithm="hhj"), cases)
    assert report.conforms, [violation.verdict for violation in report.violations]
    assert report.levels["prompt"].checked > 0


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES if entry.count_based])
@pytest.mark.parametrize("cut", ["", " ~1 /", " ~2 /"])
def test_equal_rows_keep_their_own_ends(name, cut):
    """Three equal rows, in [1,2), [1,3) and [2,3): as changes, what comes at 2 hides what goes."""
    k = ("k decimal(4,1)",)
    query = Source("T", *k).window(Range(2)).join(Source("R", *k).window(Rows(2)), on="k")
    lanes = f"T(k decimal(4,1)): 1.0@0 1.0@1{cut} ~9 | R(k decimal(4,1)): 1.0@1{cut} 1.0@2 ~9"
    case = replace(parse_lanes(lanes).case(query), output="append")
    report = check_cases(InProcess(algorithm=name), [case])
    assert report.conforms, [violation.verdict for violation in report.violations]
    assert report.levels["final"].checked == 1


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES if entry.paper == "004"])
def test_nan_is_the_same_after_a_step(name):
    """Between steps an algorithm is bytes, and NaN does not equal itself."""
    stream = Source("S", "v double").window(Range(5))
    lanes = "S(v double): NaN@1 ~2 / NaN@3 ~4 / 1.0@20 ~30"
    for query in (stream.distinct(), stream.group_by("v", n=count_rows())):
        report = check_cases(InProcess(algorithm=name), [parse_lanes(lanes).case(query)])
        assert report.conforms, [violation.verdict for violation in report.violations]
        assert report.levels["final"].checked == 1


def test_adapters_by_name():
    adapter = open_adapter("in-process:mw")
    assert adapter.name == "in-process:mw"
    assert adapter.claims.operators == {"window_join"}
    with pytest.raises(AdapterError, match="spark-batch has no algorithm 'quick'; use one of hhj"):
        open_adapter("spark-batch:quick")
    with pytest.raises(AdapterError, match="unknown adapter 'reference:mw'"):
        open_adapter("reference:mw")


def test_late_algorithms_stand_on_top_of_a_stream():
    below = joined_windows([Range(5), Range(5)])
    above = Union(below, below)
    assert Use("lazy-nlj").applies(below, above)
    assert not Use("lazy-nlj", streaming=True).applies(below, above)
    assert situation_of(below).keys == 1


# --- through the public operators -----------------------------------------------------------------


@pytest.fixture
def bids(data: Data) -> Relation:
    return data("id int, p int", (1, 7, 1), (3, 7, 2), (4, 8, 3), (9, 7, 4))


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_explain_prints_the_choice_its_cost_and_the_rest(data: Data, capsys):
    bids = data("id int", (1, 7), range="1 minute")
    facts = [Statistics(10, 10), Statistics(100, 10)]
    bids.join(bids, on="id", algorithm="auto", statistics=facts).explain()
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"join\(on id\) \[hnj\]", lines[0])
    assert re.search(
        r"hnj \(HNJ, paper 002\), chosen by auto; cost [\d,]+ tuples touched", lines[1]
    )
    assert [line.split()[2] for line in lines[2:5]] == ["hhj", "nhj", "nnj"]


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_join_of_three_is_the_same_by_kernels_and_by_an_algorithm(bids: Relation):
    others = [bids.select("id", "p").select("id"), bids.select("id")]
    plain = bids.join(others, on="id").changelog()
    made = bids.join(others, on="id", algorithm="hash-join").changelog()
    assert sorted(plain.collect()) == sorted(made.collect())
    assert plain.count() > 4


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_path_in_both_directions(spark: SparkSession):
    """001, section 5.2: as docs/algorithms.md says it, and as `PathWJoin` does it by itself."""
    dice = random.Random(5)
    streams = [
        sorted((dice.randrange(40), (dice.randrange(3), at)) for at in range(25)) for _ in "abc"
    ]
    frames = {
        name: spark.createDataFrame(
            [(ts, obj, at, ts) for ts, (obj, at) in own],
            f"ts long, obj long, {name} long, t{name} long",
        )
        for name, own in zip("abc", streams, strict=True)
    }
    pairs = {("a", "b"): 5, ("b", "c"): 3}
    back = {(second, first): length for (first, second), length in pairs.items()}

    def one_way(names: str, within: dict[tuple[str, str], int]) -> Relation:
        inputs = {name: frames[name] for name in names}
        made = window_join(
            inputs, on="obj", ts="ts", within=within, directed=True, algorithm="path"
        )
        return made.select("obj", "a", "b", "c", "ta", "tb", "tc")

    # What is all at one time goes both ways.
    there, and_back = one_way("abc", pairs), one_way("cba", back)
    both = there.union(and_back.where("NOT (ta = tb AND tb = tc)"))
    found = Counter((row.a, row.b, row.c) for row in both.changelog().collect())
    join = PathWJoin([5, 3], [(0,)] * 3, both_ways=True)
    expected = Counter(tuple(row[1] for row in made.rows) for made in run_all(join, streams))
    assert found == expected
    assert there.changelog().count() < len(expected) > and_back.changelog().count() > 0


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_limits_report_what_they_leave_out(bids: Relation):
    half = bids.join(bids, on="id", algorithm=Algorithm("hhj", shares=(0.5, 1.0)))
    (row,) = half.work().collect()
    assert (row.operator, row.dropped) == ("join(on id)", 2)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_calls_that_cannot_work(bids: Relation, data: Data):
    with pytest.raises(QueryError, match="only algorithms count their work"):
        bids.distinct().work()
    with pytest.raises(QueryError, match="distinct: there is no algorithm 'hhj' here; use one of"):
        bids.distinct(algorithm="hhj")
    with pytest.raises(QueryError, match="at least one other relation"):
        bids.join([], on="id")
    two = {name: data.frame("id int", (1, 7)) for name in "ab"}
    with pytest.raises(QueryError, match="use one of auto, nlw, hw, mw"):
        window_join(two, on="id", ts="ts", within={("a", "b"): 5}, algorithm="quick")
    with pytest.raises(QueryError, match="windows of streams"):
        bids.distinct().join(bids, on="id", algorithm="hhj")


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_measured_statistics(bids: Relation):
    assert measure(bids, on="id") == Statistics(500_000.0, 2)
    with pytest.raises(QueryError, match="has no rows"):
        measure(bids.where("id > 100"))


# --- written down ---------------------------------------------------------------------------------


def test_every_algorithm_has_a_section_that_says_what_when_and_where_from():
    text = DOCS.read_text(encoding="utf-8")
    for entry in ENTRIES:
        found = re.search(rf"^### `{re.escape(entry.name)}`\n(.*?)(?=\n#|\Z)", text, re.M | re.S)
        assert found is not None, f"{entry.name} has no section"
        words = " ".join(found[1].split())
        assert re.fullmatch(rf"What: .+ When: .+ Source: {entry.paper}, section.+\.", words), words


def test_every_section_is_about_an_algorithm():
    found = re.findall(r"^### `(.+)`$", DOCS.read_text(encoding="utf-8"), re.M)
    assert found == [
        entry.name
        for paper in ("002", "003", "001", "000", "004")
        for entry in ENTRIES
        if entry.paper == paper
    ]
