"""Algorithms as bytes, between the steps of a query.

Their objects are pickled. A checkpoint is data, not code: what is read back may only be made of the
algorithms' own classes and of plain values. Parts that belong to the query and not to its state
(a user's aggregate) are left out, and put back by name.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Mapping
from typing import Any, Final

from reference.errors import TickproofError
from reference.types import NAN

_MODULES: Final = ("spark_impl.algorithms.", "reference.")
_PLAIN: Final = {
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "range"),
    ("collections", "Counter"),
    ("collections", "deque"),
    ("datetime", "date"),
    ("decimal", "Decimal"),
}


_NAN: Final = "nan"
"""NaN is one object wherever rows are compared, and must be that one again."""


class FrozenError(TickproofError):
    """Bytes that are not the state of an algorithm."""


class _Freezer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, left_out: Mapping[str, object]) -> None:
        super().__init__(file, protocol=5)
        self._names = {id(part): name for name, part in left_out.items()}

    def persistent_id(self, obj: Any) -> str | None:
        if isinstance(obj, float) and math.isnan(obj):
            return _NAN
        return self._names.get(id(obj))


class _Thawer(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, left_out: Mapping[str, object]) -> None:
        super().__init__(file)
        self._parts = {**left_out, _NAN: NAN}

    def persistent_load(self, pid: Any) -> Any:
        return self._parts[pid]

    def find_class(self, module: str, name: str) -> Any:
        known = module.startswith(_MODULES) or (module, name) in _PLAIN
        found = super().find_class(module, name) if known else None
        if not isinstance(found, type):
            raise FrozenError(f"the state names {module}.{name}, which no algorithm is made of")
        return found


def frozen(state: object, left_out: Mapping[str, object]) -> bytes:
    """An object of algorithms as bytes.

    >>> from spark_impl.algorithms.base import Work
    >>> thawed(frozen([Work(touched=3)], {}), {})[0].touched
    3
    """
    file = io.BytesIO()
    _Freezer(file, left_out).dump(state)
    return file.getvalue()


def thawed(data: bytes, left_out: Mapping[str, object]) -> Any:
    """Undo `frozen`, with the parts that were left out."""
    return _Thawer(io.BytesIO(data), left_out).load()
