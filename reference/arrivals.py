"""Which tuples count: the ones that break no promise made before they arrived.

Two ways to keep promises exist, and the judge must know which one an engine uses:

- `element`: every element counts in the order in which it arrives in its stream. A watermark is a
  promise of its own stream. This is the definition.
- `step`: the step (micro-batch) is the unit of arrival. The engine announces one watermark for all
  inputs after each step; watermark elements promise nothing by themselves. A tuple is late if it
  breaks a promise that stood before its step, and within a step tuples come before promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from reference.case import Case
from reference.errors import CaseError
from reference.streams import Element, Punctuation, StreamTuple, Watermark

ARRIVALS = ("element", "step")


@dataclass(frozen=True)
class Late:
    """A tuple that was dropped, and the promise it breaks."""

    tuple: StreamTuple
    promise: Punctuation | Watermark


@dataclass(frozen=True)
class Broken:
    """A promise that was false when it was made, and a tuple that shows it."""

    promise: Punctuation
    tuple: StreamTuple


@dataclass
class Admitted:
    """What became of the elements of one stream, up to some step."""

    tuples: list[StreamTuple] = field(default_factory=list)
    promises: list[Punctuation] = field(default_factory=list)
    watermark: int | None = None
    late: list[Late] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)

    def take(self, element: Element) -> None:
        """Let one element in, drop it, or ignore it, as its kind and the promises before it say."""
        match element:
            case StreamTuple():
                promise = self.promise_against(element)
                if promise is None:
                    self.tuples.append(element)
                else:
                    self.late.append(Late(element, promise))
            case Punctuation():
                witness = next((t for t in self.tuples if element.forbids(t)), None)
                if witness is None:
                    self.promises.append(element)
                else:
                    self.broken.append(Broken(element, witness))
            case Watermark():
                self.advance(element.ts)

    def advance(self, watermark: int | None) -> None:
        """Raise the watermark; a lower one says nothing new."""
        if watermark is not None and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark

    def promise_against(self, tuple_: StreamTuple) -> Punctuation | Watermark | None:
        """A promise that the tuple would break."""
        if self.watermark is not None and tuple_.ts <= self.watermark:
            return Watermark(self.watermark)
        return next((p for p in self.promises if p.forbids(tuple_)), None)

    def copy(self) -> Admitted:
        return Admitted(
            list(self.tuples),
            list(self.promises),
            self.watermark,
            list(self.late),
            list(self.broken),
        )


@dataclass(frozen=True)
class Progress:
    """What is known after one step: of each stream what was let in, and the query's watermark."""

    streams: dict[str, Admitted]
    watermark: int | None


def progress(
    case: Case, arrival: str = "element", announced: Sequence[int | None] = ()
) -> list[Progress]:
    """What is known after each step of a case.

    With `arrival="step"`, `announced[i]` is the watermark that the engine announced after step i.
    """
    if arrival not in ARRIVALS:
        raise CaseError(f"arrival {arrival!r}: use element or step")
    current = {name: Admitted() for name in case.streams}
    found: list[Progress] = []
    for step, arriving in enumerate(case.arrivals()):
        for name, elements in arriving.items():
            ordered = elements if arrival == "element" else tuples_first(elements)
            for element in ordered:
                current[name].take(element)
        if arrival == "step":
            watermark = announced[step] if step < len(announced) else None
            for admitted in current.values():
                admitted.advance(watermark)
        else:
            read = [source.name for source in case.query.sources]
            watermark = slowest([current[name].watermark for name in read])
        found.append(Progress({name: a.copy() for name, a in current.items()}, watermark))
    return found


def admitted(
    case: Case, arrival: str = "element", announced: Sequence[int | None] = ()
) -> dict[str, list[StreamTuple]]:
    """The tuples of each stream that count, after the whole case has arrived."""
    return {name: a.tuples for name, a in progress(case, arrival, announced)[-1].streams.items()}


def slowest(watermarks: Sequence[int | None]) -> int | None:
    """The watermark of several inputs: none until all have one, then the smallest."""
    known = [watermark for watermark in watermarks if watermark is not None]
    return min(known) if len(known) == len(watermarks) else None


def tuples_first(elements: Sequence[Element]) -> list[Element]:
    """The elements of a step where that is the unit of arrival, as they count."""
    tuples: list[Element] = [e for e in elements if isinstance(e, StreamTuple)]
    promises = [e for e in elements if isinstance(e, Punctuation)]
    return tuples + promises
