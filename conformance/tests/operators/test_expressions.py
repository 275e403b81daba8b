"""Expressions and row identity, value by value."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from reference import Call, QueryError, col, lit
from reference.expressions import Lit
from reference.streams import columns
from reference.types import BOOLEAN, NAN, Type
from spark_impl.convert import python_values
from spark_impl.encode import (
    HashCollision,
    from_ordered_bits,
    hash_columns,
    identify,
    is_narrow,
    normal_doubles,
    order_codes,
    ordered_bits,
    same_values,
    validity,
)
from spark_impl.evaluate import Evaluator

D = decimal.Decimal
INF = float("inf")


def value_of(expr, schema=(), row=()):
    typed = columns(*schema)
    arrays = [
        normal_doubles(pa.array([value], column.type.arrow))
        for value, column in zip(row, typed, strict=True)
    ]
    found = Evaluator(typed).column(expr, arrays, 1)
    (value,) = python_values(found, columns(**{"x": expr.type_in(typed)})[0])
    return value


TRUTHS = (True, False, None)


@pytest.mark.parametrize("a", TRUTHS)
@pytest.mark.parametrize("b", TRUTHS)
def test_three_valued_logic(a, b):
    left, right = Lit(a, BOOLEAN), Lit(b, BOOLEAN)
    both = False if a is False or b is False else None if a is None or b is None else True
    either = True if a is True or b is True else None if a is None or b is None else False
    assert value_of(left & right) is both
    assert value_of(left | right) is either
    assert value_of(~left) is (None if a is None else not a)
    assert value_of(left.is_null()) is (a is None)
    assert value_of(left.same_as(right)) is (a is b)
    assert value_of(left.eq(right)) is (None if a is None or b is None else a is b)
    assert value_of(Call("if", (left, lit(1), lit(2)))) == (1 if a else 2)


def test_nan_is_equal_to_itself_and_greatest():
    nan, one, low = lit(NAN), lit(1.0), lit(-INF)
    assert value_of(nan.eq(nan)) is True
    assert value_of(nan.ne(one)) is True
    assert value_of(nan > lit(INF)) is True
    assert value_of(nan <= nan) is True
    assert value_of(nan < nan) is False
    assert value_of(one < nan) is True
    assert value_of(nan >= low) is True
    assert value_of(lit(0.0).eq(lit(-0.0))) is True


def test_numbers_of_different_types_are_compared_by_value():
    assert value_of(lit(1).eq(lit(1.0))) is True
    assert value_of(lit(2**53 + 1).eq(lit(D("9007199254740992")))) is False
    assert value_of(lit(D("0.10")).eq(lit(D("0.1")))) is True
    assert value_of(lit(D("1.5")) < lit(2)) is True
    assert value_of(Lit(10**37 * D(1), Type("decimal", 38, 0)) > lit(D("0.1234567890123"))) is True
    schema, row = ("i integer", "b bigint"), (3, 4)
    assert value_of(col("i") < col("b"), schema, row) is True


def test_strings_are_ordered_by_their_bytes():
    assert value_of(lit("Z") < lit("a")) is True
    assert value_of(lit("é") > lit("z")) is True
    assert value_of(lit("\uffff") < lit("\U0001f600")) is True


def test_arithmetic():
    schema, row = ("i integer", "b bigint", "d double"), (2**31 - 1, 5, 0.5)
    assert value_of(col("i") + col("i"), schema, row) == 2**32 - 2
    assert value_of(col("b") * col("d"), schema, row) == 2.5
    assert value_of(col("b") - lit(None, "bigint"), schema, row) is None
    assert str(value_of(col("d") * -0.0, schema, row)) == "0.0"
    with pytest.raises(QueryError, match="does not fit bigint"):
        value_of(col("b") + (2**63 - 1), schema, row)


COLUMNS = [
    pa.array([1.0, 0.0, None, NAN, -INF, -1.5, 0.0]),
    pa.array(["b", None, "", "é", "b", "ba", "Z"]),
    pa.array([D("1.5"), None, D("-1.5"), D(0), D("1.5"), D(10**36), None], pa.decimal128(38, 1)),
    pa.array([True, False, None, True, False, None, True]),
    pa.array([datetime.date(1960, 1, 1), None, datetime.date(2020, 1, 1)] * 2 + [None]),
    pa.array([1, None, -5, 7, 2**62, -(2**63), 7], pa.timestamp("us")),
    pa.array([1, None, -5, 7, 8, -(2**31), 7], pa.int32()),
    pa.array([1, None, -5, 7, 2**63 - 1, -(2**63), 7], pa.int64()),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_identity_and_order(column):
    if pa.types.is_timestamp(column.type):
        values = column.view(pa.int64()).to_pylist()
    else:
        values = column.to_pylist()

    def key(value):
        if value is None:
            return (0, 0)
        if value != value:
            return (2, 0)
        return (1, value.encode() if isinstance(value, str) else value)

    codes = order_codes(column)
    size = len(values)
    for i in range(size):
        for j in range(size):
            assert (codes[i] < codes[j]) == (key(values[i]) < key(values[j]))
    ids = identify(hash_columns([column], 0, size), [column]).ids
    assert [[a == b for a in ids] for b in ids] == [
        [key(a) == key(b) for a in values] for b in values
    ]
    part = column.slice(2)
    assert (
        hash_columns([part], 1, size - 2).tolist() == hash_columns([column], 1, size)[2:].tolist()
    )
    if is_narrow(column.type):
        valid = validity(column)
        again = from_ordered_bits(
            ordered_bits(column), column.type, None if valid is None else ~valid
        )
        assert same_values(again, column).all()


def test_different_rows_with_one_hash_are_noticed():
    with pytest.raises(HashCollision):
        identify(np.zeros(2, np.int64), [pa.array(["a", "b"])])
    null_beside_its_stand_in = pa.array(
        [None, int(hash_columns([pa.array([None], pa.int64())], 0, 1)[0])]
    )
    with pytest.raises(HashCollision):
        identify(hash_columns([null_beside_its_stand_in], 0, 2), [null_beside_its_stand_in])


def test_structs_as_payload():
    one = pa.array([{"a": 1, "b": "x"}, {"a": 1, "b": None}, {"a": 1, "b": "x"}])
    ids = identify(hash_columns([one], 0, 3), [one]).ids
    assert ids[0] == ids[2] != ids[1]
