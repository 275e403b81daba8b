"""Sums without rounding, so that adding and subtracting for ever cannot drift.

A number is cut into *limbs*: integers that stand for multiples of 2**(32 * place). Limbs of one
place are added up as 64-bit integers, which is exact for two thousand million numbers, and they can
be subtracted again. Only when a sum is looked at, carries are taken and the limbs become a number.

A double is an integer of 53 bits times a power of two; so sums of doubles, and of their squares,
are exact too, whatever their sizes are and in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_impl.frame import Bools, Ints

Limbs = dict[int, Ints]
"""For each place, the limb of each number."""

Doubles = NDArray[np.float64]

_MASK = np.int64(2**32 - 1)
_UNSIGNED_MASK = np.uint64(2**32 - 1)
_32 = np.int64(32)
_U32 = np.uint64(32)

DOUBLE_UNIT = -1126
"""Place 0 of a double stands for 2**-1126; the smallest double is 2**-1074."""
SQUARE_UNIT = 2 * DOUBLE_UNIT


def integer_limbs(values: Ints) -> Limbs:
    """64-bit integers."""
    return {0: values & _MASK, 1: values >> _32}


def decimal_limbs(both: NDArray[np.uint64]) -> Limbs:
    """128-bit integers, given as two words each, the low one first."""
    low, high = both[:, 0], both[:, 1]
    top = high.view(np.int64) >> _32
    parts = (low & _UNSIGNED_MASK, low >> _U32, high & _UNSIGNED_MASK)
    return {**{place: part.view(np.int64) for place, part in enumerate(parts)}, 3: top}


def _mantissa(values: Doubles) -> tuple[NDArray[np.uint64], Ints, Ints]:
    """Finite doubles as sign, 53-bit integer, and exponent counted from DOUBLE_UNIT."""
    fraction, exponent = np.frexp(np.abs(values))
    whole = np.ldexp(fraction, 53).astype(np.uint64)
    sign = np.where(values < 0, np.int64(-1), np.int64(1))
    return whole, np.where(whole == 0, 0, exponent.astype(np.int64) - 53 - DOUBLE_UNIT), sign


def double_limbs(values: Doubles) -> Limbs:
    """Finite doubles, counted in 2**DOUBLE_UNIT."""
    whole, exponent, sign = _mantissa(values)
    shift = (exponent & 31).astype(np.uint64)
    low = (whole & _UNSIGNED_MASK) << shift
    high = ((whole >> _U32) << shift) + (low >> _U32)
    pieces = [low & _UNSIGNED_MASK, high & _UNSIGNED_MASK, high >> _U32]
    return _placed(pieces, exponent >> 5, sign)


def square_limbs(values: Doubles) -> Limbs:
    """The squares of finite doubles, counted in 2**SQUARE_UNIT."""
    whole, exponent, _ = _mantissa(values)
    low, high = whole & _UNSIGNED_MASK, whole >> _U32
    square, cross, top = low * low, low * high, high * high
    # square + cross * 2**33 + top * 2**64, as four limbs.
    limb = [square & _UNSIGNED_MASK]
    carry = (square >> _U32) + ((cross << np.uint64(1)) & _UNSIGNED_MASK)
    limb.append(carry & _UNSIGNED_MASK)
    carry = (carry >> _U32) + (cross >> np.uint64(31)) + (top & _UNSIGNED_MASK)
    limb.append(carry & _UNSIGNED_MASK)
    limb.append((carry >> _U32) + (top >> _U32))
    shift = ((2 * exponent) & 31).astype(np.uint64)
    pieces, over = [], np.zeros(len(values), np.uint64)
    for part in limb:
        moved = (part << shift) + over
        pieces.append(moved & _UNSIGNED_MASK)
        over = moved >> _U32
    pieces.append(over)
    return _placed(pieces, (2 * exponent) >> 5, np.ones(len(values), np.int64))


def _placed(pieces: list[NDArray[np.uint64]], lowest: Ints, sign: Ints) -> Limbs:
    """Put the pieces of each number at its own places."""
    signed = [piece.view(np.int64) * sign for piece in pieces]
    if len(lowest) == 0:
        return {}
    found: Limbs = {}
    if int(lowest.min()) == int(lowest.max()):
        return {int(lowest[0]) + n: piece for n, piece in enumerate(signed) if piece.any()}
    for start in np.flatnonzero(np.bincount(lowest)):
        mine = lowest == start
        for n, piece in enumerate(signed):
            place = int(start) + n
            if place not in found:
                found[place] = np.zeros(len(lowest), np.int64)
            found[place][mine] = piece[mine]
    return {place: limb for place, limb in found.items() if limb.any()}


# --- looking at sums ------------------------------------------------------------------------------


def _dense(limbs: Mapping[int, Ints], length: int, room: int) -> tuple[int, list[Ints]]:
    """The limbs from the lowest place on without gaps, and `room` empty ones above."""
    if not limbs:
        return 0, [np.zeros(length, np.int64) for _ in range(room + 1)]
    lowest, highest = min(limbs), max(limbs)
    zero = np.zeros(length, np.int64)
    return lowest, [limbs.get(place, zero) for place in range(lowest, highest + 1 + room)]


def carried(limbs: list[Ints]) -> list[Ints]:
    """The same numbers with all limbs but the highest from 0 to 2**32 - 1."""
    made: list[Ints] = []
    carry = np.zeros_like(limbs[0])
    for limb in limbs[:-1]:
        total = limb + carry
        made.append(total & _MASK)
        carry = total >> _32
    made.append(limbs[-1] + carry)
    return made


def magnitude(limbs: Mapping[int, Ints], length: int) -> tuple[int, list[Ints], Ints]:
    """Sign and absolute value: the lowest place, limbs from 0 to 2**32 - 1, and -1, 0 or 1.

    Two limbs of room take up whatever 64-bit sums carry.
    """
    lowest, dense = _dense(limbs, length, 2)
    normal = carried(dense)
    negative = normal[-1] < 0
    if bool(negative.any()):
        factor = np.where(negative, np.int64(-1), np.int64(1))
        normal = carried([limb * factor for limb in normal])
    some = np.zeros(length, np.bool_)
    for limb in normal:
        some |= limb != 0
    return lowest, normal, np.where(negative, -1, some.astype(np.int64))


def to_double(limbs: Mapping[int, Ints], unit: int, length: int) -> Doubles:
    """Sums as doubles, counted in 2**unit."""
    lowest, normal, sign = magnitude(limbs, length)
    fraction, exponent = _scaled(normal)
    with np.errstate(over="ignore", under="ignore"):
        return sign.astype(np.float64) * np.ldexp(fraction, exponent + (unit + 32 * lowest))


def _scaled(normal: list[Ints]) -> tuple[Doubles, NDArray[np.int32]]:
    """Limbs from 0 to 2**32 - 1 as `fraction * 2**exponent`, such that nothing overflows."""
    length = len(normal[0])
    top = np.zeros(length, np.int64)
    for place, limb in enumerate(normal):
        top[limb != 0] = place
    value = np.zeros(length, np.float64)
    for place, limb in enumerate(normal):
        # Limbs far below the highest one are below half a unit in the last place.
        near = np.clip(place - top, -4, 0) * 32
        value += np.ldexp(limb.astype(np.float64), near.astype(np.int32))
    return value, (32 * top).astype(np.int32)


def to_int64(limbs: Mapping[int, Ints], length: int) -> tuple[Ints, Bools]:
    """Sums as 64-bit integers, and which of them do not fit."""
    _, dense = _dense({0: np.zeros(length, np.int64), **limbs}, length, 2)
    low, high, *above = carried([*dense, np.zeros(length, np.int64)])
    value = low + (high << _32)
    negative = value < 0
    spill = np.zeros(length, np.bool_)
    for limb in above[:-1]:
        spill |= limb != np.where(negative, _MASK, 0)
    spill |= above[-1] != np.where(negative, -1, 0)
    return value, spill


def to_decimal(
    limbs: Mapping[int, Ints], length: int, scale: int, mask: Bools | None
) -> tuple[pa.Array, Bools]:
    """Sums as decimals of 38 digits (NULL where the mask is true), and which do not fit."""
    zero = np.zeros(length, np.int64)
    normal = carried([limbs.get(place, zero) for place in range(6)])
    top = np.where(normal[3] >= 2**31, normal[3] - 2**32, normal[3])
    extension = np.where(top < 0, np.int64(-1), np.int64(0))
    spill = (normal[4] != (extension & _MASK)) | (normal[5] != extension)
    raw = np.empty((length, 2), np.int64)
    raw[:, 0] = normal[0] | (normal[1] << _32)
    raw[:, 1] = normal[2] | (top << _32)
    estimate = np.abs(raw[:, 1].astype(np.float64)) * 2.0**64
    for at in np.flatnonzero((estimate > 0.99e38) & ~spill):
        exact = int(raw[at, 1]) * 2**64 + (int(raw[at, 0]) & (2**64 - 1))
        spill[at] = abs(exact) >= 10**38
    validity = None
    if mask is not None and bool(mask.any()):
        validity = pa.array(~mask).buffers()[1]
    made = pa.Array.from_buffers(
        pa.decimal128(38, scale), length, [validity, pa.py_buffer(raw.tobytes())]
    )
    return made, spill


# --- the sample standard deviation ----------------------------------------------------------------


def deviation(sums: Mapping[int, Ints], squares: Mapping[int, Ints], counts: Ints) -> Doubles:
    """The sample standard deviation from exact sums; `counts` are 2 or more.

    count * squares - sums**2 is found exactly, so nothing cancels, and equal values give zero.
    """
    length = len(counts)
    low, limbs, _ = magnitude(sums, length)
    halves = _halves(limbs)
    product = [np.zeros(length, np.int64) for _ in range(2 * len(halves))]
    for i, first in enumerate(halves):
        for j, second in enumerate(halves):
            product[i + j] += first * second
    square_low, square_limbs_, _ = magnitude(squares, length)
    scaled = [half * counts for half in _halves(square_limbs_)]
    lowest = min(4 * low, 2 * square_low)
    size = max(4 * low + len(product), 2 * square_low + len(scaled)) - lowest + 3
    difference = [np.zeros(length, np.int64) for _ in range(size)]
    for at, part in enumerate(scaled):
        difference[2 * square_low - lowest + at] += part
    for at, part in enumerate(product):
        difference[4 * low - lowest + at] -= part
    fraction, exponent = _scaled(_whole(difference))
    power = exponent.astype(np.int64) + (SQUARE_UNIT + 16 * lowest)
    odd = power & 1
    pairs = counts.astype(np.float64) * (counts - 1).astype(np.float64)
    root = np.sqrt(fraction * (1.0 + odd) / pairs)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(root, ((power - odd) >> 1).astype(np.int32))


def _halves(limbs: list[Ints]) -> list[Ints]:
    """Limbs of 16 bits, whose products can be added up without overflow."""
    return [part for limb in limbs for part in (limb & 0xFFFF, limb >> 16)]


def _whole(halves: list[Ints]) -> list[Ints]:
    """Sums of 16-bit limbs, not negative together, as limbs of 32 bits."""
    made: list[Ints] = []
    carry = np.zeros_like(halves[0])
    for half in halves:
        total = half + carry
        made.append(total & 0xFFFF)
        carry = total >> np.int64(16)
    if len(made) % 2:
        made.append(np.zeros_like(made[0]))
    return [made[at] | (made[at + 1] << np.int64(16)) for at in range(0, len(made), 2)]
