"""Promises, by rules: what is closed, what may be punctuated, and what must still be held.

After each step of a run, `reference.arrivals.Progress` says which tuples were let in, which
punctuations hold, and which watermarks stand. W is the watermark of the query. What its changelog
says at or before W is out; all of it is still to come while there is no W.

- A stream's *admissible future* is any finite bag of further tuples, each after the stream's own
  watermark and none forbidden by a punctuation that holds.
- A stream is *closed* for a value of a column if no admissible future has a tuple with that value.
- An output punctuation "column = value" is *sound* if in no admissible future the canonical
  changelog has a + entry after W that matches it. An entry that follows from what has arrived
  already, but lies after W, is still to come and counts.
- A tuple at a leaf of the query is *needed* if in some admissible future the part of the changelog
  after W would be another one without that tuple (without one copy of it, at that leaf only).
- A tuple at a leaf is *allowed* in the state of an operator if it is not expired at W, and if it is
  not of a value that the other input is closed for. A needed tuple is always allowed.

With append output, the rows with a time after W take the place of the changelog.

What is asked for: an output column that is some stream's column handed through (`origins`), and a
value that a tuple of that stream carries or a punctuation names, once a punctuation that speaks
of that column matches the value. `sound` reports each in the first step in which it is sound.

This package decides by rules, one set for each operator, for queries of one operator over leaves; a
leaf may have selections and projections on top of it. It says `Undecided` wherever the rules do not
reach, and never guesses. `reference.futures` decides the same by trying futures out.

How the rules work. Two things can make an output punctuation unsound, or a tuple needed: what has
arrived already, and what may still arrive. The first is computed outright (`to_come`). The second
is about *new* tuples, which all lie after W, so at W they have changed nothing; each rule asks only
whether a new tuple can be in the right place at the right time. It may come in as many copies as
are needed to outnumber all that has arrived; so no coincidence of one row leaving at the instant
at which an equal one enters can hide it. From which rows a stream may still send, finitely many are
looked at: the values that matter, and for each gap between them a value in that gap.

Decisions that the specification leaves open:

- Which row stands for a key of `Distinct(on=...)` is free, and so is how often another takes over.
  What new tuples do to it is decided by its key columns; a punctuation is called sound only where
  no choice of rows leads to a + entry, unsound only where every choice does.
- A group-by without keys remembers its first instant by itself; no tuple is needed to know it.
- A tuple in a `Rows` window takes up a place, whatever its value, so no closed value frees it.
- A tuple of a window join expires when no row with it can begin any more.
"""

from reference.promises.arriving import closed, latest
from reference.promises.model import BEFORE, Leaf, OutputPunctuation, State, Undecided
from reference.promises.origins import leaves, origins
from reference.promises.questions import (
    Promised,
    after_each_step,
    allowed_state,
    asked,
    closed_values,
    minimal_state,
    needs,
    sound,
    soundness,
    unexpired_state,
)

__all__ = [
    "BEFORE",
    "Leaf",
    "OutputPunctuation",
    "Promised",
    "State",
    "Undecided",
    "after_each_step",
    "allowed_state",
    "asked",
    "closed",
    "closed_values",
    "latest",
    "leaves",
    "minimal_state",
    "needs",
    "origins",
    "sound",
    "soundness",
    "unexpired_state",
]
