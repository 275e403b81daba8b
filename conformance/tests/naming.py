"""Cases whose promises only name values, as those that come among the rows of a stream do."""

from __future__ import annotations

from dataclasses import replace

from reference.case import Case
from reference.streams import Constant, Punctuation, StreamTuple, Wildcard


def naming_one_key(case: Case) -> Case:
    """The same case with promises that name one key each; more of them are false than before."""
    return naming(case, 1, with_null=False)


def naming(case: Case, width: int, with_null: bool = True) -> Case:
    """The same case with promises that name what some row has in its first columns."""
    streams = {}
    for name, stream in case.streams.items():
        known = [own.row[:width] for own in stream.elements if isinstance(own, StreamTuple)]
        if not with_null:
            known = [row for row in known if None not in row]
        known = known or [(1,) * width]
        elements = []
        for number, element in enumerate(stream.elements):
            if isinstance(element, Punctuation):
                named = [Constant(value) for value in known[number % len(known)]]
                rest = [Wildcard()] * (len(stream.columns) - width)
                element = replace(element, patterns=(*named, *rest))
            elements.append(element)
        streams[name] = replace(stream, elements=tuple(elements))
    return replace(case, streams=streams)
