"""The aggregates of a group-by: what they need to know, and how their values are found.

`Accumulators` are integers that can be added and subtracted exactly: counts and limbs of sums. From
them count, sum, avg and stddev are read. The others need the live values themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reference.aggregates import BUILT_IN, Aggregate, user_function
from reference.errors import QueryError
from reference.expressions import Expr
from reference.streams import Column
from reference.types import Type, Value
from spark_impl.encode import (
    bits,
    from_ordered_bits,
    is_narrow,
    normal_doubles,
    order_codes,
    ordered_bits,
    validity,
    words,
)
from spark_impl.evaluate import as_doubles
from spark_impl.frame import Bools, Ints, take_columns
from spark_impl.kernels import exact
from spark_impl.kernels.ordering import order_by
from spark_impl.kernels.over_intervals import covering, least, ranked, records

Accumulated = dict[str, Ints]
"""By name, one integer for each row, group or point; a name that is missing stands for zeros."""

ROWS = "rows"


class Argument:
    """One column that aggregates look at, and what has to be accumulated of it."""

    def __init__(self, number: int, expr: Expr, type_: Type) -> None:
        self.number = number
        self.expr = expr
        self.type = type_
        self.sums = False
        self.squares = False

    @property
    def present(self) -> str:
        """The name of the count of values that are not NULL."""
        return f"present{self.number}"

    def contributions(self, column: pa.Array) -> Accumulated:
        """What each row adds."""
        valid = validity(column)
        present = np.ones(len(column), np.int64) if valid is None else valid.astype(np.int64)
        found = {self.present: present}
        if not self.sums and not self.squares:
            return found
        if self.type.is_integral:
            whole = bits(column)
            limbs = exact.integer_limbs(whole if valid is None else np.where(valid, whole, 0))
            found |= self._named("sum", limbs)
        elif self.type.kind == "decimal":
            found |= self._named("sum", exact.decimal_limbs(words(column)))
        if self.type.kind == "double" or self.squares:
            found |= self._doubles(as_doubles(column), valid)
        return found

    def _doubles(self, column: pa.Array, valid: Bools | None) -> Accumulated:
        values = column.to_numpy(zero_copy_only=False)
        if valid is not None:
            values = np.where(valid, values, 0.0)
        found: Accumulated = {}
        finite = np.isfinite(values)
        if not bool(finite.all()):
            found[f"nan{self.number}"] = np.isnan(values).astype(np.int64)
            found[f"above{self.number}"] = (values == np.inf).astype(np.int64)
            found[f"below{self.number}"] = (values == -np.inf).astype(np.int64)
            values = np.where(finite, values, 0.0)
        found |= self._named("real", exact.double_limbs(values))
        if self.squares:
            found |= self._named("square", exact.square_limbs(values))
        return found

    def _named(self, what: str, limbs: exact.Limbs) -> Accumulated:
        return {f"{what}{self.number}@{place}": limb for place, limb in limbs.items()}

    def limbs(self, what: str, sums: Mapping[str, Ints]) -> exact.Limbs:
        """Undo `_named`."""
        prefix = f"{what}{self.number}@"
        return {int(n.removeprefix(prefix)): v for n, v in sums.items() if n.startswith(prefix)}


class Lifetimes:
    """Values on a timeline: where they live, and which aggregates of them hold at each point."""

    def __init__(self, first: Ints, stop: Ints, columns: Sequence[pa.Array], points: int) -> None:
        self.first, self.stop = first, stop
        self.columns = tuple(columns)
        self.points = points

    def only(self, places: Iterable[int]) -> Lifetimes:
        """The same rows with some of the columns."""
        return Lifetimes(self.first, self.stop, [self.columns[at] for at in places], self.points)

    def present(self, place: int) -> Lifetimes:
        """One column, where it is not NULL."""
        column = self.columns[place]
        valid = validity(column)
        if valid is None:
            return self.only([place])
        at = np.flatnonzero(valid)
        return Lifetimes(self.first[at], self.stop[at], take_columns([column], at), self.points)


class Measure:
    """One output column of a group-by."""

    def __init__(self, item: Aggregate, schema: Sequence[Column], args: Sequence[Argument]) -> None:
        self.item = item
        self.function = item.function
        self.type = item.type_in(schema)
        self.args = tuple(args)
        if self.function in ("sum", "avg"):
            self.args[0].sums = True
        if self.function == "stddev":
            self.args[0].squares = True

    @property
    def is_extreme(self) -> bool:
        return self.function in ("min", "max")

    @property
    def needs_bag(self) -> bool:
        """Whether all live values of a group are needed, not only sums or the best ones."""
        return self.function == "median" or self.function not in BUILT_IN

    def read(self, sums: Mapping[str, Ints]) -> pa.Array:
        """The value at each point, from accumulated sums."""
        length = len(sums[ROWS])
        zeros = np.zeros(length, np.int64)
        if self.function == "count":
            name = self.args[0].present if self.args else ROWS
            return pa.array(sums.get(name, zeros))
        arg = self.args[0]
        present = sums.get(arg.present, zeros)
        if self.function == "sum":
            return self._sum(arg, sums, present == 0)
        if self.function == "avg":
            with np.errstate(invalid="ignore"):
                mean = self._total(arg, sums, length) / np.maximum(present, 1)
            return _doubles(mean, present == 0)
        assert self.function == "stddev", self.function
        many = np.flatnonzero(present > 1)
        spread = np.zeros(length, np.float64)
        spread[many] = exact.deviation(
            {place: limb[many] for place, limb in arg.limbs("real", sums).items()},
            {place: limb[many] for place, limb in arg.limbs("square", sums).items()},
            present[many],
        )
        for odd in ("nan", "above", "below"):
            spread[sums.get(f"{odd}{arg.number}", zeros) > 0] = np.nan
        return _doubles(spread, present < 2)

    def _sum(self, arg: Argument, sums: Mapping[str, Ints], none: Bools) -> pa.Array:
        if arg.type.kind == "double":
            return _doubles(self._total(arg, sums, len(none)), none)
        limbs = arg.limbs("sum", sums)
        if arg.type.kind == "decimal":
            made, spill = exact.to_decimal(limbs, len(none), arg.type.scale, none)
        else:
            whole, spill = exact.to_int64(limbs, len(none))
            made = pa.array(whole, mask=none)
        if bool((spill & ~none).any()):
            raise QueryError(f"{self.item}: a sum does not fit {self.type}")
        return made

    @staticmethod
    def _total(arg: Argument, sums: Mapping[str, Ints], length: int) -> exact.Doubles:
        """The sum as a double."""
        if arg.type.kind == "double":
            zeros = np.zeros(length, np.int64)
            total = exact.to_double(arg.limbs("real", sums), exact.DOUBLE_UNIT, length)
            above = sums.get(f"above{arg.number}", zeros) > 0
            below = sums.get(f"below{arg.number}", zeros) > 0
            total[above] = np.inf
            total[below] = -np.inf
            total[(above & below) | (sums.get(f"nan{arg.number}", zeros) > 0)] = np.nan
            return total
        total = exact.to_double(arg.limbs("sum", sums), 0, length)
        return total / 10.0**arg.type.scale if arg.type.kind == "decimal" else total

    def extreme(self, values: Lifetimes, present: Ints) -> pa.Array:
        """MIN or MAX at each point; `present` counts the values there."""
        column = values.columns[0]
        codes = ordered_bits(column) if is_narrow(column.type) else order_codes(column)
        if self.function == "max":
            codes = ~codes
        best = least(values.first, values.stop, codes, values.points)
        if self.function == "max":
            best = ~best
        none = present == 0
        if is_narrow(column.type):
            return from_ordered_bits(best, column.type, none)
        return _decoded(best, none, column, codes if self.function == "min" else ~codes)

    def middle(self, values: Lifetimes, present: Ints) -> pa.Array:
        """MEDIAN at each point."""
        column = normal_doubles(as_doubles(values.columns[0]))
        asked = np.flatnonzero(present)
        count = present[asked]
        # The two middle ones; for an odd number they are the same.
        odd = (count & 1).astype(np.bool_)
        points = np.concatenate([asked, asked[~odd]])
        ranks = np.concatenate([(count - 1) // 2, count[~odd] // 2])
        order = np.argsort(points, kind="stable")
        codes = ordered_bits(column)
        answer = np.empty(len(points), np.int64)
        answer[order] = ranked(
            values.first, values.stop, codes, points[order], ranks[order], values.points
        )
        found = from_ordered_bits(answer, pa.float64(), None).to_numpy(zero_copy_only=False)
        low, high = found[: len(asked)], found[: len(asked)].copy()
        high[~odd] = found[len(asked) :]
        result = np.zeros(values.points, np.float64)
        with np.errstate(invalid="ignore"):
            result[asked] = np.where(low == high, low, low * 0.5 + high * 0.5)
        return _doubles(result, present == 0)

    def bag(self, values: Lifetimes, exists: Bools) -> pa.Array:
        """A user function at each point where the group has a row."""
        made = user_function(self.function)
        lists = [
            _python(column, arg.type) for column, arg in zip(values.columns, self.args, strict=True)
        ]
        bag: list[Value] = lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))
        if not lists:
            bag = [()] * len(values.first)
        results: list[Value] = [None] * values.points
        for begin, end, point, row in covering(values.first, values.stop, values.points):
            edges = np.searchsorted(point, np.arange(begin, end + 1)).tolist()
            rows = row.tolist()
            for at in np.flatnonzero(exists[begin:end]).tolist():
                live = [bag[n] for n in rows[edges[at] : edges[at + 1]]]
                results[begin + at] = made.function(live)
        if made.result.kind == "timestamp":
            return pa.array(results, pa.int64()).view(pa.timestamp("us"))
        return normal_doubles(pa.array(results, made.result.arrow))


def _doubles(values: exact.Doubles, none: Bools) -> pa.Array:
    return normal_doubles(pa.array(values, pa.float64(), mask=none, from_pandas=False))


def _decoded(best: Ints, none: Bools, column: pa.Array, codes: Ints) -> pa.Array:
    """The values behind codes; NULL where the mask is true."""
    distinct, where = np.unique(codes, return_index=True)
    if len(distinct) == 0:
        return pa.nulls(len(best), column.type)
    at = np.searchsorted(distinct, np.where(none, distinct[0], best))
    positions = pa.array(where[at], mask=none)
    return pc.take(column, positions)


def _python(column: pa.Array, type_: Type) -> list[Value]:
    if type_.kind == "timestamp":
        column = column.view(pa.int64())
    found: list[Value] = column.to_pylist()
    return found


def best_values(groups: Ints, ends: Ints, column: pa.Array, wants_max: bool) -> Ints:
    """The positions of values that can still be the extreme of their group one day.

    A value that ends before, or with, another one that is at least as good will never be.
    """
    codes = ordered_bits(column) if is_narrow(column.type) else order_codes(column)
    if wants_max:
        codes = ~codes
    # Of values that end together one may stay too many, which does no harm.
    # Backwards, and without overflow before 1970.
    order = order_by(groups, ~ends, int(groups.max(initial=-1)) + 1)
    return order[records(groups[order], codes[order])]
