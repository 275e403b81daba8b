"""Row identity by SQL's rules, as integers.

Rows that are equal to a query (NULL is NULL, NaN is NaN, -0.0 is 0.0) get equal 64-bit hashes, the
same in every process and step, so that state can be found again. A hash alone may lie: whenever
rows are put together by their hashes, the columns are compared too, and if two different rows share
a hash, `HashCollision` is raised. The operator then changes the seed and tries again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_impl.frame import Bools, Ints, take_columns

Unsigned = NDArray[np.uint64]

_NULL = np.int64(-0x61C8_8646_80B5_83EB)
_FIRST_FACTOR = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND_FACTOR = np.uint64(0x94D0_49BB_1331_11EB)
_STEP = np.uint64(0x9E37_79B9_7F4A_7C15)


class HashCollision(Exception):  # noqa: N818 - a signal to try again, not a failure
    """Two different rows have the same hash under this seed."""


def mixed(bits: Unsigned) -> Unsigned:
    """A bijection of 64-bit numbers that spreads every bit (the finaliser of splitmix64)."""
    spread = (bits ^ (bits >> np.uint64(30))) * _FIRST_FACTOR
    spread = (spread ^ (spread >> np.uint64(27))) * _SECOND_FACTOR
    return spread ^ (spread >> np.uint64(31))


def normal_doubles(column: pa.Array) -> pa.Array:
    """A column of doubles with one zero and one NaN; any other column as it is."""
    if not pa.types.is_float64(column.type):
        return column
    values = column.to_numpy(zero_copy_only=False)
    clean = np.where(np.isnan(values), np.nan, values + 0.0)
    mask = None if column.null_count == 0 else _is_null(column)
    return pa.array(clean, pa.float64(), mask=mask, from_pandas=False)


def _is_null(column: pa.Array) -> Bools:
    mask: Bools = pc.is_null(column).to_numpy(zero_copy_only=False)
    return mask


def validity(column: pa.Array) -> Bools | None:
    """Which values are not NULL; None if all are."""
    if column.null_count == 0:
        return None
    mask: Bools = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return mask


def is_narrow(type_: pa.DataType) -> bool:
    """Whether a value fits 64 bits, so that the bits themselves are its identity."""
    return not (
        pa.types.is_string(type_) or pa.types.is_decimal(type_) or pa.types.is_nested(type_)
    )


def bits(column: pa.Array) -> Ints:
    """The values of a narrow column as 64-bit integers; what stands for NULL is arbitrary.

    Doubles must be in normal form. Except for doubles the integers are ordered as the values are.
    """
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    if column.null_count:
        column = pc.fill_null(
            column, pa.scalar(0, pa.int64()).cast(_plain(column.type)).cast(column.type)
        )
    if pa.types.is_float64(column.type):
        doubles: NDArray[np.float64] = column.to_numpy(zero_copy_only=False)
        return doubles.view(np.int64)
    whole = column.view(_plain(column.type)).to_numpy(zero_copy_only=False)
    as_int64: Ints = whole.astype(np.int64, copy=False)
    return as_int64


def _plain(type_: pa.DataType) -> pa.DataType:
    """The integer (or double) type with the same bits."""
    if pa.types.is_timestamp(type_):
        return pa.int64()
    if pa.types.is_date32(type_):
        return pa.int32()
    return type_


def words(column: pa.Array) -> NDArray[np.uint64]:
    """The two 64-bit words of each 128-bit decimal, low word first; NULLs are zero."""
    if len(column) == 0:
        return np.empty((0, 2), np.uint64)
    raw = np.frombuffer(column.buffers()[1], np.uint64, count=2 * (column.offset + len(column)))
    both = raw.reshape(-1, 2)[column.offset :]
    valid = validity(column)
    return both if valid is None else np.where(valid[:, None], both, np.uint64(0))


def _column_hash(column: pa.Array, seed: int) -> Ints:
    """A hash of each value of one column."""
    if pa.types.is_string(column.type):
        encoded = column.dictionary_encode()
        texts = encoded.dictionary.to_numpy(zero_copy_only=False)
        key = f"tickproof{seed:07d}"[:16]
        each = pd.util.hash_array(texts, hash_key=key, categorize=False).view(np.int64)
        codes = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
        found = each[codes] if len(each) else np.zeros(len(column), np.int64)
    elif pa.types.is_decimal(column.type):
        both = words(column)
        found = (mixed(both[:, 1] + _STEP) ^ both[:, 0]).view(np.int64)
    elif pa.types.is_struct(column.type):
        found = hash_columns(column.flatten(), seed, len(column))
    else:
        found = bits(column)
    valid = validity(column)
    return found if valid is None else np.where(valid, found, _NULL)


def hash_columns(columns: Sequence[pa.Array], seed: int, length: int) -> Ints:
    """A 64-bit hash of each row.

    For one narrow column without NULLs it is a bijection, which saves the comparison of columns.
    """
    if len(columns) == 1 and is_narrow(columns[0].type) and seed == 0:
        return _column_hash(columns[0], seed)
    so_far = np.full(length, seed, np.uint64)
    for column in columns:
        so_far = mixed((so_far ^ _column_hash(column, seed).view(np.uint64)) + _STEP)
    return so_far.view(np.int64)


@dataclass(frozen=True)
class Identity:
    """Rows numbered: equal rows have equal numbers, 0 to `count` - 1, in the order of hashes."""

    ids: Ints
    first: Ints
    """For each number, the position of one row that has it."""
    others: Ints
    """The numbers behind further hashes, whose rows are known to be among these."""

    @property
    def count(self) -> int:
        return len(self.first)


def identify(hashes: Ints, columns: Sequence[pa.Array], others: Ints | None = None) -> Identity:
    """Number the rows; raises HashCollision if different rows have equal hashes."""
    every = hashes if others is None else np.concatenate([hashes, others])
    found, distinct = pd.factorize(every)
    # Numbers in the order of hashes: what is stored in their order needs no index.
    order = np.argsort(distinct)
    rank = np.empty(len(distinct), np.int64)
    rank[order] = np.arange(len(distinct))
    numbers = rank[found]
    ids = numbers[: len(hashes)]
    first = np.empty(len(distinct), np.int64)
    first[ids[::-1]] = np.arange(len(hashes) - 1, -1, -1)
    if not _is_injective(columns) and len(first) < len(hashes):
        verify(columns, first[ids])
    return Identity(ids, first, numbers[len(hashes) :])


def identified(columns: Sequence[pa.Array], length: int) -> Identity:
    """The rows numbered, by whatever hashes tell them apart."""
    seed = 0
    while True:
        try:
            return identify(hash_columns(columns, seed, length), columns)
        except HashCollision:
            seed += 1


def numbered(hashes: Ints, columns: Sequence[pa.Array]) -> tuple[Ints, int]:
    """A number for each row, the same for equal ones, and how many numbers there can be.

    As `identify`, but in no order, and some numbers may stand for no row.
    """
    if len(hashes) and _is_injective(columns):
        least, most = int(hashes.min()), int(hashes.max())
        if most - least < 4 * len(hashes):
            return hashes - np.int64(least), most - least + 1
    identity = identify(hashes, columns)
    return identity.ids, identity.count


def _is_injective(columns: Sequence[pa.Array]) -> bool:
    return not columns or (
        len(columns) == 1 and is_narrow(columns[0].type) and columns[0].null_count == 0
    )


def verify(columns: Sequence[pa.Array], partner: Ints) -> None:
    """Raise HashCollision unless every row equals the row at its partner position."""
    for column, other in zip(columns, take_columns(columns, partner), strict=True):
        if not bool(same_values(column, other).all()):
            raise HashCollision


def same_values(column: pa.Array, other: pa.Array) -> Bools:
    """Where two columns of one type hold the same value, NULL and NaN included."""
    same: Bools
    if pa.types.is_struct(column.type):
        same = np.ones(len(column), np.bool_)
        for mine, theirs in zip(column.flatten(), other.flatten(), strict=True):
            same &= same_values(mine, theirs)
        return same
    if is_narrow(column.type):
        same = bits(column) == bits(other)
    elif pa.types.is_decimal(column.type):
        equal: Bools = words(column) == words(other)
        same = equal[:, 0] & equal[:, 1]
    else:
        same = pc.fill_null(pc.equal(column, other), True).to_numpy(zero_copy_only=False)
    mine_valid, theirs_valid = validity(column), validity(other)
    if mine_valid is None and theirs_valid is None:
        return same
    everywhere = np.ones(len(column), np.bool_)
    mine = everywhere if mine_valid is None else mine_valid
    theirs = everywhere if theirs_valid is None else theirs_valid
    same_validity: Bools = mine == theirs
    return same_validity & (same | ~mine)


def same_as_before(column: pa.Array) -> Bools:
    """For each row but the first, whether it holds the value of the row before it."""
    return same_values(column.slice(1), column.slice(0, len(column) - 1))


def without_null(columns: Sequence[pa.Array], length: int) -> Bools:
    """The rows in which no column is NULL."""
    mask = np.ones(length, np.bool_)
    for column in columns:
        valid = validity(column)
        if valid is not None:
            mask &= valid
    return mask


def order_codes(column: pa.Array) -> Ints:
    """Integers in the order of the values: NULL first, NaN last, strings by their UTF-8 bytes.

    The codes of one call are comparable with each other only.
    """
    if pa.types.is_string(column.type):
        encoded = column.dictionary_encode()
        order = pc.array_sort_indices(encoded.dictionary).to_numpy()
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        codes = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
        found = ranks[codes] if len(ranks) else np.zeros(len(column), np.int64)
    elif pa.types.is_decimal(column.type):
        found = _decimal_codes(column)
    else:
        found = ordered_bits(column)
    valid = validity(column)
    if valid is None:
        return found
    ranks = np.unique(found[valid], return_inverse=True)[1]
    codes = np.zeros(len(column), np.int64)
    codes[valid] = ranks + 1
    return codes


def _decimal_codes(column: pa.Array) -> Ints:
    both = words(column)
    high, low = both[:, 1].view(np.int64), both[:, 0]
    order = np.lexsort((low, high))
    changed = np.ones(len(order), np.int64)
    changed[:1] = 0
    same = (high[order][1:] == high[order][:-1]) & (low[order][1:] == low[order][:-1])
    changed[1:] = ~same
    codes = np.empty(len(order), np.int64)
    codes[order] = np.cumsum(changed)
    return codes


def ordered_bits(column: pa.Array) -> Ints:
    """The values of a narrow column as integers in the same order, NaN last."""
    plain = bits(column)
    if pa.types.is_float64(column.type):
        # The bits of negative doubles are ordered backwards.
        return np.where(plain < 0, ~plain ^ np.int64(-(2**63)), plain)
    return plain


def from_ordered_bits(codes: Ints, type_: pa.DataType, mask: Bools | None) -> pa.Array:
    """Undo `ordered_bits`; NULL where the mask is true."""
    if pa.types.is_float64(type_):
        plain = np.where(codes < 0, ~(codes ^ np.int64(-(2**63))), codes)
        return pa.array(plain.view(np.float64), pa.float64(), mask=mask, from_pandas=False)
    if pa.types.is_boolean(type_):
        return pa.array(codes != 0, pa.bool_(), mask=mask)
    plain_type = _plain(type_)
    values = codes if mask is None else np.where(mask, 0, codes)
    narrowed = values.astype(plain_type.to_pandas_dtype())
    return pa.array(narrowed, plain_type, mask=mask).view(type_)
