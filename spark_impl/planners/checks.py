"""Refusals of statistics that mean nothing."""

from __future__ import annotations


def need_positive(**numbers: float) -> None:
    """Refuse anything that is not above zero.

    >>> need_positive(rate=0)
    Traceback (most recent call last):
    ...
    ValueError: rate is 0; it must be above 0
    """
    for name, value in numbers.items():
        if not value > 0:
            raise ValueError(f"{name} is {value}; it must be above 0")


def need_at_least(least: float, **numbers: float) -> None:
    """Refuse what lies below `least`."""
    for name, value in numbers.items():
        if not value >= least:
            raise ValueError(f"{name} is {value}; it must be {least} or more")
