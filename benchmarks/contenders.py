"""The same changelogs, written as windowed queries, as plain Spark SQL, and for DuckDB.

A contender of Spark is a DataFrame, one of DuckDB a query. All give the columns of the relation,
`ts` and `sign`. The SQL makes use of everything it can know: all rows live equally long, no value
is NULL, all numbers are whole. The windowed queries leave rows without a time out (`null_ts`), as
SQL does; to refuse them would cost a job that counts them first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.streams import HOT_LENGTH, LIVE, Streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_impl import Relation

NEWEST = 10
"""The size of the rows windows."""
MODULUS = 1_000_003


@dataclass(frozen=True)
class Dialect:
    """What differs between Spark's SQL and DuckDB's."""

    name: str

    def entries(self, rows: str, columns: Sequence[str], pairs: Sequence[tuple[str, str]]) -> str:
        """Each row as several rows; `pairs` are (condition, "columns ..., ts, sign")."""
        names = [*columns, "ts", "sign"]
        if self.name == "spark":
            # To explode a constant is faster than to stack rows that are made for it.
            split = [_split(values) for _, values in pairs]
            signs = [values[-1] for values in split]
            made = []
            for at, name in enumerate(names[:-1]):
                values = [own[at] for own in split]
                text = values[0] if len(set(values)) == 1 else _by_sign(signs, values)
                made.append(f"{text} AS {name}")
            kept = (
                "" if all(c == "true" for c, _ in pairs) else _by_sign(signs, [c for c, _ in pairs])
            )
            return (
                f"SELECT {', '.join(made)}, sign FROM ({rows}) "
                f"LATERAL VIEW explode(array({', '.join(signs)})) AS sign"
            ) + (f" WHERE {kept}" if kept else "")
        # For DuckDB lists are slower than one scan of the found rows for each part.
        parts = " UNION ALL ".join(
            "SELECT "
            + ", ".join(f"{v} AS {n}" for v, n in zip(_split(values), names, strict=True))
            + f" FROM found WHERE {condition}"
            for condition, values in pairs
        )
        return f"WITH found AS MATERIALIZED ({rows}) {parts}"

    def events(self, table: str, columns: str, come: str, go: str, names: str) -> str:
        """The instants at which the rows of a stream come and go, with what they change."""
        if self.name == "spark":
            return (
                f"SELECT {columns}, {names} FROM {table} LATERAL VIEW "
                f"stack(2, {come}, {go}) AS {names}"
            )
        aliases = [name.strip() for name in names.split(",")]
        parts = [
            f"SELECT {columns}, "
            + ", ".join(f"{v} AS {n}" for v, n in zip(_split(values), aliases, strict=True))
            + f" FROM {table}"
            for values in (come, go)
        ]
        return " UNION ALL ".join(parts)

    def text(self, call: str) -> str:
        return call if self.name == "spark" else call.replace("percentile", "quantile_cont")

    def bins(self, first: str, last: str) -> str:
        if self.name == "spark":
            return f"explode(sequence({first}, {last}))"
        return f"unnest(range({first}, {last} + 1))"


def _by_sign(signs: Sequence[str], values: Sequence[str]) -> str:
    """One value for the first sign, the other for the other."""
    first, second = values
    return f"IF(sign = {signs[0]}, {first}, {second})"


def _split(values: str) -> list[str]:
    """Split at commas outside parentheses."""
    found, depth, start = [], 0, 0
    for at, char in enumerate(values):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            found.append(values[start:at].strip())
            start = at + 1
    return [*found, values[start:].strip()]


SPARK, DUCKDB = Dialect("spark"), Dialect("duckdb")
Sql = Callable[[Dialect], str]
Ours = Callable[["SparkSession", Streams], "Relation"]


@dataclass(frozen=True)
class Contest:
    """One operator."""

    name: str
    columns: tuple[str, ...]
    ours: Ours
    sql: dict[str, Sql]
    """Formulations for Spark and DuckDB; the best one counts."""
    range_frames: bool = False
    """Whether the SQL uses RANGE frames: then it must be ten times as slow."""
    plain_is_quadratic: bool = False
    share: int = 1
    """One row in so many is used, where the others would take minutes for all of them."""


# --- joins ----------------------------------------------------------------------------------------


def _join_rows(key: str, length: int, left: str = "a", right: str = "b", more: str = "") -> str:
    return (
        f"SELECT l.{key} AS k, l.v AS v, r.v AS w, greatest(l.ts, r.ts) AS ts, "
        f"least(l.ts, r.ts) + {length} AS ets FROM {left} l JOIN {right} r "
        f"ON l.{key} = r.{key} {more}AND l.ts < r.ts + {length} AND r.ts < l.ts + {length}"
    )


def _both_ends(dialect: Dialect, rows: str, columns: Sequence[str]) -> str:
    names = ", ".join(columns)
    return dialect.entries(
        rows, columns, [("true", f"{names}, ts, 1"), ("true", f"{names}, ets, -1")]
    )


def _plain_join(key: str, length: int) -> Sql:
    return lambda d: _both_ends(d, _join_rows(key, length), ("k", "v", "w"))


def _binned_join(key: str, length: int) -> Sql:
    width = 2 * length
    div = {"spark": "div", "duckdb": "//"}

    def sql(d: Dialect) -> str:
        by = div[d.name]
        first = f"greatest(ts - {length - 1}, 0) {by} {width}"
        last = f"(ts + {length - 1}) {by} {width}"
        left = f"(SELECT *, {d.bins(first, last)} AS bin FROM a)"
        right = f"(SELECT *, ts {by} {width} AS bin FROM b)"
        rows = _join_rows(key, length, left, right, "AND l.bin = r.bin ")
        return _both_ends(d, rows, ("k", "v", "w"))

    return sql


def _our_join(key: str, length: int) -> Ours:
    def ours(spark: SparkSession, streams: Streams) -> Relation:
        from spark_impl import windowed

        a = streams.frame(spark, "a", f"{key} AS k", "v", "ts")
        b = streams.frame(spark, "b", f"{key} AS k", "v AS w", "ts")
        left, right = (windowed(df, "ts", range=length, null_ts="drop") for df in (a, b))
        return left.join(right, on="k")

    return ours


def _our_window_join(spark: SparkSession, streams: Streams) -> Relation:
    from spark_impl import window_join

    inputs = {name: streams.frame(spark, name, "k", f"v AS v{name}", "ts") for name in "abc"}
    within = {("a", "b"): LIVE, ("b", "c"): LIVE}
    return window_join(inputs, on="k", ts="ts", within=within, null_ts="drop")


def _window_join(d: Dialect) -> str:
    return (
        "SELECT a.k AS k, a.v AS va, b.v AS vb, c.v AS vc, "
        "greatest(a.ts, b.ts, c.ts) AS ts, 1 AS sign FROM a JOIN b ON a.k = b.k "
        f"AND abs(a.ts - b.ts) <= {LIVE} JOIN c ON b.k = c.k AND abs(b.ts - c.ts) <= {LIVE}"
    )


# --- sets -----------------------------------------------------------------------------------------


def _our_set(name: str) -> Ours:
    def ours(spark: SparkSession, streams: Streams) -> Relation:
        from spark_impl import windowed

        frames = (streams.frame(spark, x, "s", "ts") for x in "ab")
        a, b = (windowed(frame, "ts", range=LIVE, null_ts="drop") for frame in frames)
        return a.distinct() if name == "distinct" else getattr(a, name)(b)

    return ours


def _distinct(d: Dialect) -> str:
    rows = (
        "SELECT s, ts, lag(ts) OVER w AS earlier, lead(ts) OVER w AS later FROM a "
        "WINDOW w AS (PARTITION BY s ORDER BY ts)"
    )
    return d.entries(
        rows,
        ("s",),
        [
            (f"earlier IS NULL OR earlier + {LIVE} < ts", "s, ts, 1"),
            (f"later IS NULL OR later > ts + {LIVE}", f"s, ts + {LIVE}, -1"),
        ],
    )


def _two_sided(copies: str) -> Sql:
    def sql(d: Dialect) -> str:
        a = d.events("a", "s", "ts, 1, 0", f"ts + {LIVE}, -1, 0", "t, l, r")
        b = d.events("b", "s", "ts, 0, 1", f"ts + {LIVE}, 0, -1", "t, l, r")
        counts = (
            "SELECT s, t, sum(l) OVER w AS l, sum(r) OVER w AS r, lead(t) OVER w AS later "
            f"FROM ({a} UNION ALL {b}) WINDOW w AS (PARTITION BY s ORDER BY t)"
        )
        # Of the events of one instant the last one counts; sums over peers are equal anyway.
        now = f"SELECT s, t, {copies} AS n FROM ({counts}) WHERE later IS NULL OR later > t"
        change = (
            "SELECT s, t AS ts, CAST(n - coalesce(lag(n) OVER (PARTITION BY s ORDER BY t), 0) "
            f"AS bigint) AS sign FROM ({now})"
        )
        return f"SELECT * FROM ({change}) WHERE sign <> 0"

    return sql


# --- groups ---------------------------------------------------------------------------------------


def _our_groups(key: str, **aggregates: str) -> Ours:
    def ours(spark: SparkSession, streams: Streams) -> Relation:
        import spark_impl
        from spark_impl import windowed

        made = {}
        for name, text in aggregates.items():
            function, _, column = text.partition(" ")
            made[name] = getattr(spark_impl, function)(*([column] if column else []))
        frame = streams.frame(spark, "a", key, "v", "ts")
        stream = windowed(frame, "ts", range=LIVE, null_ts="drop")
        return stream.group_by(key).agg(**made)

    return ours


def _spells(d: Dialect, key: str, names: Sequence[str], now: str, exists: str) -> str:
    """From values at instants to the changelog of rows; `now` has `t` and the values."""
    every = [*names, "exists_"]
    before = ", ".join(f"lag({n}) OVER w AS old_{n}" for n in every)
    found = (
        f"SELECT *, {before} FROM (SELECT *, {exists} AS exists_ FROM ({now})) "
        f"WINDOW w AS (PARTITION BY {key} ORDER BY t)"
    )
    differs = " OR ".join(f"{n} IS DISTINCT FROM old_{n}" for n in every)
    old = ", ".join(f"old_{n}" for n in names)
    return d.entries(
        f"SELECT * FROM ({found}) WHERE {differs}",
        (key, *names),
        [
            ("old_exists_", f"{key}, {old}, t, -1"),
            ("exists_", f"{key}, {', '.join(names)}, t, 1"),
        ],
    )


def _count_and_sum(d: Dialect) -> str:
    events = d.events("a", "g", "ts, 1, v", f"ts + {LIVE}, -1, -v", "t, one, amount")
    sums = (
        "SELECT g, t, CAST(sum(one) OVER w AS bigint) AS n, CAST(sum(amount) OVER w AS bigint) "
        f"AS total, lead(t) OVER w AS later FROM ({events}) "
        "WINDOW w AS (PARTITION BY g ORDER BY t)"
    )
    now = f"SELECT g, t, n, total FROM ({sums}) WHERE later IS NULL OR later > t"
    return _spells(d, "g", ("n", "total"), now, "n > 0")


def _range_frames(values: dict[str, str], exists: str) -> Sql:
    def sql(d: Dialect) -> str:
        events = d.events("a", "b", "ts, v", f"ts + {LIVE}, CAST(NULL AS bigint)", "t, x")
        some = ", ".join(f"{d.text(text)} OVER w AS {name}" for name, text in values.items())
        frames = (
            f"SELECT b, t, {some}, lead(t) OVER (PARTITION BY b ORDER BY t) AS later "
            f"FROM ({events}) WINDOW w AS (PARTITION BY b ORDER BY t "
            f"RANGE BETWEEN {LIVE - 1} PRECEDING AND CURRENT ROW)"
        )
        now = f"SELECT * FROM ({frames}) WHERE later IS NULL OR later > t"
        return _spells(d, "b", tuple(values), now, exists)

    return sql


# --- rows -----------------------------------------------------------------------------------------


def _our_rows(spark: SparkSession, streams: Streams) -> Relation:
    from spark_impl import windowed

    frame = streams.frame(spark, "a", "g", "v", "ts")
    return windowed(frame, "ts", rows=NEWEST, partition_by="g", null_ts="drop")


def _rows(d: Dialect) -> str:
    rows = f"SELECT g, v, ts, lead(ts, {NEWEST}) OVER (PARTITION BY g ORDER BY ts, v) AS ets FROM a"
    return d.entries(
        rows,
        ("g", "v"),
        [
            ("ets IS NULL OR ets > ts", "g, v, ts, 1"),
            ("ets > ts", "g, v, ets, -1"),
        ],
    )


def contests() -> list[Contest]:
    return [
        Contest(
            "join, uniform keys",
            ("k", "v", "w"),
            _our_join("k", LIVE),
            {"plain": _plain_join("k", LIVE), "bins": _binned_join("k", LIVE)},
        ),
        Contest(
            "join, half the rows on one key",
            ("k", "v", "w"),
            _our_join("hot", HOT_LENGTH),
            {
                "plain": _plain_join("hot", HOT_LENGTH),
                "bins": _binned_join("hot", HOT_LENGTH),
            },
            plain_is_quadratic=True,
        ),
        Contest("distinct", ("s",), _our_set("distinct"), {"lag and lead": _distinct}),
        Contest("minus", ("s",), _our_set("minus"), {"sweep": _two_sided("greatest(l - r, 0)")}),
        Contest("intersect", ("s",), _our_set("intersect"), {"sweep": _two_sided("least(l, r)")}),
        Contest(
            "count and sum",
            ("g", "n", "total"),
            _our_groups("g", n="count", total="sum_ v"),
            {"sweep": _count_and_sum},
        ),
        Contest(
            "min and max",
            ("b", "low", "high"),
            _our_groups("b", low="min_ v", high="max_ v"),
            {"RANGE": _range_frames({"low": "min(x)", "high": "max(x)"}, "low IS NOT NULL")},
            range_frames=True,
        ),
        Contest(
            "median",
            ("b", "middle"),
            _our_groups("b", middle="median v"),
            {"RANGE": _range_frames({"middle": "percentile(x, 0.5)"}, "middle IS NOT NULL")},
            range_frames=True,
            share=4,
        ),
        Contest("rows window", ("g", "v"), _our_rows, {"lead": _rows}),
        Contest(
            "window_join of three",
            ("k", "va", "vb", "vc"),
            _our_window_join,
            {"plain": _window_join},
        ),
    ]


def checksum_sql(entries: str, columns: Sequence[str]) -> str:
    """How many canonical entries there are, and a sum of their hashes, the same in any engine."""
    names = ", ".join(columns)
    canonical = (
        f"SELECT {names}, ts, sum(sign) AS copies FROM ({entries}) AS e GROUP BY {names}, ts "
        "HAVING sum(sign) <> 0"
    )
    steps = f"SELECT *, CAST(0 AS bigint) AS h FROM ({canonical}) AS e"
    kept = ", ".join([*columns, "ts", "copies"])
    for column in [*columns, "ts", "copies"]:
        value = f"CAST({column} * 2 AS bigint)"
        sum_ = f"((h * 1009 + ({value} % {MODULUS}) + {MODULUS}) % {MODULUS})"
        steps = f"SELECT {kept}, {sum_} AS h FROM ({steps}) AS e"
        steps = f"SELECT {kept}, (h * h + h) % {MODULUS} AS h FROM ({steps}) AS e"
    return f"SELECT count(*) AS entries, CAST(sum(h) AS bigint) AS checksum FROM ({steps}) AS e"


def spark_frame(spark: SparkSession, streams: Streams, sql: Sql) -> DataFrame:
    for name in "abc":
        streams.whole(spark, name).createOrReplaceTempView(name)
    return spark.sql(sql(SPARK))
