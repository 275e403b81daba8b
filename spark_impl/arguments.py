"""What a user may write for the arguments of the operators, and what is said if it is wrong."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame

from reference.errors import QueryError
from reference.query import Within
from reference.windows import Range
from spark_impl.durations import ticks

DEFAULT_DELAY = "10 seconds"


def flat(given: Sequence[Any]) -> list[Any]:
    """Arguments one by one, or as one list, as Spark's own methods take them."""
    return list(given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given)


def is_star(column: object) -> bool:
    """Whether all columns are meant."""
    return isinstance(column, str) and column == "*"


def spelt(given: object) -> str:
    """What the user wrote: a Column shows itself as Column<'...'>."""
    text = str(given)
    if isinstance(given, SparkColumn):
        text = text.removeprefix("Column<").removesuffix(">").strip("'")
    return text


def unused(name: str, taken: set[str]) -> str:
    """The name, or one like it that is not taken; it is taken from then on."""
    while name.lower() in taken:
        name = "_" + name
    taken.add(name.lower())
    return name


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return "`" + name.replace("`", "``") + "`"


def indented(text: str) -> str:
    """Text one step further in."""
    return "\n".join("  " + line for line in text.splitlines())


def check_choice(label: str, given: str, known: Sequence[str], what: str = "windowed") -> None:
    """Refuse what is not among the words that an argument can be."""
    if given not in known:
        raise QueryError(f"{what}: {label}={given!r}; use one of {', '.join(known)}")


def check_frame(df: object, what: str) -> None:
    """Refuse what is no DataFrame."""
    if not isinstance(df, DataFrame):
        raise QueryError(f"{what}: give a DataFrame, not a {type(df).__name__}")


def delay_ticks(df: DataFrame, given: str | int | datetime.timedelta | None, what: str) -> int:
    """How far behind the newest row a row may come, in ticks."""
    if given is not None and not df.isStreaming:
        raise QueryError(f"{what}: delay= goes with streaming DataFrames")
    try:
        length = ticks(DEFAULT_DELAY if given is None else given)
    except QueryError as error:
        raise QueryError(f"{what}: delay=: {error}") from None
    if length < 0:
        raise QueryError(f"{what}: delay={given!r} is negative")
    return length


def check_kinds(inputs: Mapping[str, object]) -> None:
    """Refuse a mixture of batch and streaming inputs."""
    streaming = [n for n, df in inputs.items() if isinstance(df, DataFrame) and df.isStreaming]
    if streaming and len(streaming) < len(inputs):
        raise QueryError(
            f"window_join: {', '.join(map(repr, streaming))} is streaming and the others are not; "
            "use one kind of input"
        )
    for name, df in inputs.items():
        check_frame(df, f"window_join, input {name!r}")


def pairs_of(within: object, inputs: Mapping[str, object]) -> list[Within]:
    """The pairwise windows of a `window_join`."""
    if not isinstance(within, Mapping):
        raise QueryError("window_join: write within as {('a', 'b'): '5 s'}")
    found: list[Within] = []
    for pair, length in within.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise QueryError(f"window_join: within names {pair!r}; name pairs, as ('a', 'b')")
        for name in pair:
            if name not in inputs:
                raise QueryError(
                    f"window_join: within names {name!r}; the inputs are {', '.join(inputs)}"
                )
        first, second = pair
        if first == second or any({w.first, w.second} == {first, second} for w in found):
            raise QueryError(f"window_join: within names the pair {pair!r} twice, or with itself")
        try:
            found.append(Within(first, second, Range(ticks(length), "[]").length))
        except QueryError as error:
            raise QueryError(f"window_join: within {pair!r}: {error}") from None
    return found


def open_error(what: str, name: str = "") -> QueryError:
    """What is said of a column whose value `distinct(on=...)` leaves open."""
    looked_at = f"column {name!r}" if name else "a column here"
    return QueryError(
        f"{what}: {looked_at} is left open by distinct(on=...) below; use its key columns only"
    )
