"""The promises that one bucket of a stage knows, and what it makes of them.

Promises travel with the rows of their input (see `wire`). In a step the rows come first: those that
break a promise of an earlier step are late. Then the promises of the step are taken in, and after
the operators have done their work the `Punctuator` drops rows that nothing can meet any more and
tells which values of the output are closed.

A bucket decides alone, so it answers for a value only if all rows that have it are its own: for the
values of the one column by which the rows are divided, or for all if there is one bucket only.

Promises of a stream come from its gate, which has sorted out the false ones; or, if the bucket sees
all tuples that they can be about, they come as they were made, and the bucket sorts them out.

Over a join of two streams by one column promises mostly name values of that column. As long as they
do, they are kept as columns (see `keyed`). The first that says something else has all of them
opened up, and from then on they are kept and looked at one by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from reference.case import OUTPUTS
from reference.clock import MAX_TIME
from reference.streams import Constant, Nothing, Punctuation, Wildcard, pattern_values
from reference.types import Row, Value
from spark_impl.convert import python_values
from spark_impl.encode import identified, normal_doubles
from spark_impl.frame import Bools, Frame, Ints, concat, int_view, take_columns
from spark_impl.horizon import Horizon
from spark_impl.operators.base import State
from spark_impl.plan import PlanState
from spark_impl.punctuation.any_join import AnyJoinRule
from spark_impl.punctuation.book import PromiseBook, only_column
from spark_impl.punctuation.keyed import SIDES, KeyedJoin, KeyedPromises
from spark_impl.punctuation.opened import opened, witnesses
from spark_impl.punctuation.promised import Promised
from spark_impl.punctuation.punctuator import Punctuator, Standing
from spark_impl.punctuation.questions import Origins, Question, Questions, origins
from spark_impl.punctuation.watch import Watch
from spark_impl.store import Store
from spark_impl.streaming.buckets import bucket_of, owner
from spark_impl.streaming.promisetable import PromiseTable, in_short, write_promises
from spark_impl.streaming.stageplan import LateRowError, StreamPlan, stream_name
from spark_impl.streaming.witnesses import Gate


@dataclass
class _Book:
    """One case."""

    heard: dict[int, PromiseBook]
    """By input."""
    questions: Questions
    watch: Watch = field(default_factory=Watch)


class StagePunctuator:
    """What is the same for all buckets of a stage; built once in each process."""

    def __init__(self, plan: StreamPlan) -> None:
        self.plan = plan

    @cached_property
    def punctuator(self) -> Punctuator:
        return Punctuator(self.plan)

    @cached_property
    def inputs(self) -> dict[int, Promised]:
        """What the promises of each input speak of."""
        return {
            int(node.stream[1:]): promised
            for node in self.plan.nodes
            if node.stream is not None and (promised := self.plan.promised(node.stream)) is not None
        }

    @cached_property
    def traced(self) -> list[Origins]:
        """For each output column, the columns of inputs from which it is handed through."""
        asks = self.plan.spec.asks
        found = []
        for at, places in enumerate(origins(self.plan.query)):
            if asks is not None and at not in asks:
                found.append(frozenset[tuple[str, int]]())
                continue
            found.append(
                frozenset(
                    (stream_name(n), promised.seen_at[place])
                    for source, place in places
                    for n, promised in self.inputs.items()
                    if source == f"in{self.plan.spec.inputs[n].side}"
                )
            )
        return found

    def watched(self, stream: str) -> list[int]:
        """The columns of an input whose values must be seen.

        None, if promises name the values that they are about: then those are known anyway.
        """
        if all(promised.names_values for promised in self.inputs.values()):
            return []
        return sorted({at for own in self.traced for name, at in own if name == stream})

    @cached_property
    def keyed_join(self) -> KeyedJoin | None:
        """The join of the stage, if promises about its key can be kept as columns."""
        asks, inputs = self.plan.spec.asks, self.inputs.values()
        # What else there can be about is not noted, so no promise may ask for it later.
        if not all(promised.names_values for promised in inputs) or (asks is not None and not asks):
            return None
        join = KeyedJoin.of(self.plan, for_others=self.plan.output not in OUTPUTS)
        return join if join is not None and len(self.inputs) == len(SIDES) else None

    @cached_property
    def side_of(self) -> dict[int, int]:
        """Which side of such a join each input is."""
        assert self.keyed_join is not None
        streams = [self.plan.nodes[leaf].stream for leaf in self.keyed_join.leaves]
        return {number: streams.index(stream_name(number)) for number in self.inputs}

    @cached_property
    def key_place(self) -> dict[int, int | None]:
        """By input, the place of the key among the columns that its promises can be about."""
        assert self.keyed_join is not None
        keys = [side.keys[-1] - self.plan.lead for side in self.keyed_join.operator.sides]
        return {n: own.origins[keys[self.side_of[n]]] for n, own in self.inputs.items()}

    @cached_property
    def judged_sides(self) -> tuple[int, ...]:
        """The sides of such a join whose false promises can be found out by the key alone.

        All that come as they were made, or none.
        """
        join = self.keyed_join
        judged = [n for n, own in enumerate(self.plan.spec.inputs) if own.judged]
        if join is None or not join.space.is_ranged:
            return ()
        if any(len(self.inputs[n].columns) != 1 or self.key_place[n] != 0 for n in judged):
            return ()
        return tuple(self.side_of[n] for n in judged)

    @cached_property
    def join_keys(self) -> dict[int, list[tuple[str, int]]]:
        """Of a join, for each input the names of its keys and where all its columns have them."""
        rule = self.punctuator.rule
        if not isinstance(rule, AnyJoinRule):
            return {}
        found: dict[int, list[tuple[str, int]]] = {}
        for n, tap in enumerate(rule.taps):
            places = [tap.raw_places[at] for at in rule.shared[n]]
            assert all(at is not None for at in places)
            found[int(tap.stream[1:])] = [
                (name, at) for name, at in zip(rule.on, places, strict=True) if at is not None
            ]
        return found


class Keeper:
    """The promises of one bucket."""

    def __init__(self, stage: StagePunctuator, bucket: int) -> None:
        self.stage = stage
        self.spec = stage.plan.spec
        self.lead = stage.plan.lead
        self.bucket = bucket
        self.books: dict[int, _Book] = {}
        join = stage.keyed_join
        self.keyed = None if join is None else KeyedPromises(join, judged=stage.judged_sides)
        """All promises, as long as they are about the key of the join; then there are no books."""
        self.changed = False
        """Whether there is something that has to be written."""
        self.gates = {} if stage.judged_sides else self._new_gates()
        """By input, what tells whether a promise is false, where that is found out here."""
        self._telling = Frame([], {}, 0)
        """The keys that are closed since this step, as they go out."""

    def _new_gates(self) -> dict[int, Gate]:
        return {
            n: Gate(own.promised.columns, self.spec.scoped)
            for n, own in enumerate(self.spec.inputs)
            if own.judged and own.promised is not None
        }

    @property
    def is_blank(self) -> bool:
        return not self.books and not (self.keyed and self.keyed.heard_any)

    def _book(self, case: int) -> _Book:
        if case not in self.books:
            mine = None
            if self.spec.asks is not None:
                mine = partial(self._is_mine, case)
            questions = Questions(self.stage.plan.query, self.stage.traced, mine)
            heard = {n: PromiseBook(own.all_columns) for n, own in self.stage.inputs.items()}
            self.books[case] = _Book(heard, questions)
        return self.books[case]

    def _is_mine(self, case: int, value: Value) -> bool:
        assert self.spec.asks
        column = self.stage.plan.query.columns[self.spec.asks[0]]
        scope = case if self.lead else None
        return owner(scope, value, column, self.spec.buckets) == self.bucket

    # --- rows -------------------------------------------------------------------------------------

    def arrive(
        self,
        taken: dict[int, Frame],
        promises: Mapping[int, Sequence[bytes]],
        closed: int | None = None,
    ) -> tuple[int, int]:
        """Take in a step: rows, which become what the operators see of them, and promises.

        `closed` is what the watermark had closed before. Gives the number of rows that are late
        because they break a promise, and that of the promises that are false.
        """
        promises, broken = self._judged(taken, promises, closed)
        sent = _listed(promises)
        about_keys = [] if self.keyed is None else [self._naming_keys(*own) for own in sent]
        if None in about_keys:
            # Before the rows are looked at: who is to look at them afterwards lets in fewer.
            by_key = not self.gates
            self._open_books()
            if by_key:
                promises, broken = self._judged(taken, promises, closed)
                sent = _listed(promises)
        late = 0
        for number, rows in taken.items():
            if number in self.stage.inputs:
                taken[number], more = self._take(number, rows)
                late += more
        if self.keyed is None:
            for number, blob in sent:
                for case, promise in self._table(number, blob).each():
                    self._hear(case, number, promise)
        else:
            for (number, _), heard in zip(sent, about_keys, strict=True):
                for keys, times in heard or ():
                    broken += self.keyed.hear(self.stage.side_of[number], keys, times)
        return late, broken

    def _judged(
        self,
        taken: Mapping[int, Frame],
        promises: Mapping[int, Sequence[bytes]],
        closed: int | None,
    ) -> tuple[Mapping[int, Sequence[bytes]], int]:
        """The promises that hold, and the number of those that were found to be false."""
        held, broken = dict(promises), 0
        for number, gate in self.gates.items():
            rows, heard = taken.get(number), promises.get(number, ())
            if rows is None and not heard:
                continue
            tuples = [] if rows is None else [self.spec.inputs[number].promised_of(rows, self.lead)]
            good, false = gate.step(tuples, heard, closed)
            self.changed = True
            if false:
                held[number] = [write_promises(good, gate.columns)] if good else []
                broken += false
        return held, broken

    def step(
        self, state: PlanState, taken: Mapping[int, Frame], watermark: int | None
    ) -> tuple[PlanState, list[Frame]]:
        """The step of the operators: the state that is left, and what goes out."""
        plan, horizon = self.stage.plan, Horizon.at(watermark)
        if self.keyed is None:
            state, delta = plan.take(state, taken, horizon)
            return self._settle(state, delta.rows, watermark)
        self.changed = self.keyed.bind(watermark) or self.changed
        if not self.keyed.heard_any:
            state, delta = plan.take(state, taken, horizon)
            return state, [delta.rows]
        # Before the first watermark no row has come out, so any time will do.
        keeping = partial(self._keep, self.keyed, 0 if watermark is None else watermark)
        state, delta = plan.take(state, taken, horizon, keeping)
        state = self.keyed.settle(state)
        if not len(self.keyed.closed):
            return state, [delta.rows]
        self.changed = True
        # They stay apart: there are few of them, and putting them together copies all rows.
        return state, [delta.rows, self._telling]

    def _keep(
        self,
        keyed: KeyedPromises,
        watermark: int,
        seed: int,
        old: Sequence[Store],
        new: Sequence[Frame],
    ) -> Sequence[Store]:
        """What a join keeps (see `Keeping`); writes down what is to be told."""
        kept = keyed.kept(seed, old, new)
        self._telling = self._told_keys(keyed.closed, watermark)
        return kept

    def _settle(
        self, state: PlanState, rows: Frame, watermark: int | None
    ) -> tuple[PlanState, list[Frame]]:
        """After the operators: the state that is left, and what goes out."""
        if self.spec.output == "changelog" and len(rows):
            again = self._told_before(rows)
            if bool(again.any()):
                rows = concat([rows.where(~again), canonical(rows.where(again))])
        if self.is_blank:
            return state, [rows]
        state, closed = self.after(state, watermark)
        if not any(closed.values()):
            return state, [rows]
        # Before the first watermark no row has come out, so any time will do.
        return state, [rows, self.told(closed, 0 if watermark is None else watermark)]

    def _told_before(self, rows: Frame) -> Bools:
        """The rows that have a value of which it was told that no more come."""
        found = np.zeros(len(rows), np.bool_)
        for at, column in enumerate(self.stage.plan.query.columns):
            if self.stage.traced[at]:
                own = rows.columns[self.lead + at]
                found |= self._answered(column.name, rows.columns[: self.lead], own)
        return found

    def _answered(self, name: str, scope: Sequence[pa.Array], values: pa.Array) -> Bools:
        """Which values of a column are known to be closed; `scope` has the case, if any."""
        found = np.zeros(len(values), np.bool_)
        books = {
            case: own.questions
            for case, own in self.books.items()
            if own.questions.any_answered(name)
        }
        if not books:
            return found
        if not self.lead:
            return books[0].answered_among(name, values)
        cases = int_view(scope[0])
        order = np.argsort(cases, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(cases[order])) + 1):
            own = books.get(int(cases[places[0]])) if len(places) else None
            if own is not None:
                found[places] = own.answered_among(name, values.take(pa.array(places)))
        return found

    def _take(self, number: int, rows: Frame) -> tuple[Frame, int]:
        """The rows of an input that break no promise, as the operators see them.

        Also counts the others. Values are noted, and rows whose value was closed are left out.
        """
        promised = self.stage.inputs[number]
        width = self.lead + len(promised.visible)
        late = 0
        if self.keyed is not None:
            broken = self.keyed.late(self.stage.side_of[number], rows)
            if broken is not None:
                late = int(np.count_nonzero(broken))
                self._refuse(number, rows, broken)
                rows = rows.where(~broken)
        elif len(rows):
            lost = self.spec.inputs[number].lost
            seen = _Seen(rows, promised, lost, self.lead)
            in_time = self._in_time(number, rows, seen)
            late = int(np.count_nonzero(~in_time))
            if late:
                rows = rows.where(in_time)
                seen = _Seen(rows, promised, lost, self.lead)
            self._note(number, seen)
            rows = rows.where(self._worth_a_look(number, seen))
        return rows if len(rows.columns) == width else rows.with_columns(rows.columns[:width]), late

    def _in_time(self, number: int, rows: Frame, seen: _Seen) -> Bools:
        spec = self.spec.inputs[number]
        if not spec.is_stream or not any(b.heard[number] for b in self.books.values()):
            return np.ones(len(rows), np.bool_)
        kind, kinds = seen.kinds(range(len(seen.promised.columns)))
        limits = np.full(len(kinds), MAX_TIME, np.int64)
        broken: dict[int, Punctuation] = {}
        for at, (case, row) in enumerate(kinds):
            book = self.books.get(case)
            about = () if book is None else book.heard[number].index.about(row)
            first = min((p for p in about if p.matches(row)), key=_time, default=None)
            if first is not None:
                limits[at], broken[at] = first.ts, first
        fine: Bools = rows["ts"] <= limits[kind]
        if spec.late == "error" and not bool(fine.all()):
            at = int(np.flatnonzero(~fine)[0])
            raise self._error(number, rows, at, broken[int(kind[at])])
        return fine

    def _refuse(self, number: int, rows: Frame, broken: Bools) -> None:
        """Stop if late rows are an error; the promise is one about the key of a join."""
        if self.spec.inputs[number].late != "error":
            return
        assert self.keyed is not None
        at = int(np.flatnonzero(broken)[0])
        side, place = self.stage.side_of[number], self.stage.key_place[number]
        keys = [own.slice(at, 1) for own in self.keyed.join.keys(side, rows)]
        ts = self.keyed.limit(side, self.keyed.space.keys(keys))
        columns = self.stage.inputs[number].columns
        (value,) = python_values(keys[-1], self.keyed.join.schema[-1])
        own = [Constant(value) if n == place else Wildcard() for n in range(len(columns))]
        raise self._error(number, rows, at, Punctuation(ts, tuple(own)))

    def _error(self, number: int, rows: Frame, at: int, promise: Punctuation) -> LateRowError:
        spec = self.spec.inputs[number]
        row = tuple(column[at].as_py() for column in rows.columns[: self.lead + len(spec.columns)])
        return LateRowError(
            f"{spec.label or 'a stream'}: the row {row!r} at {int(rows['ts'][at])} breaks the "
            f"promise {promise}; mend the promises, or use late='drop'"
        )

    def _note(self, number: int, seen: _Seen) -> None:
        """See values that may be asked for, and keys of a join for which something has changed."""
        stream = stream_name(number)
        for at in self.stage.watched(stream):
            for case, row in seen.kinds([at])[1]:
                self._book(case).questions.see(stream, at, [row[at]])
                self.changed = True
        keys = self.stage.join_keys.get(number)
        # A join by no columns has one key, which all rows share.
        if keys is not None and self.books:
            for case, row in seen.kinds([at for _, at in keys])[1]:
                if case in self.books:
                    self.books[case].watch.arrived.setdefault(stream, []).append(row)

    def _worth_a_look(self, number: int, seen: _Seen) -> Bools:
        """Rows of a join whose key was found closed are not: no row of theirs can come out."""
        closed = np.zeros(seen.length, np.bool_)
        for name, at in self.stage.join_keys.get(number, ()):
            closed |= self._answered(name, seen.scope, seen.columns[at])
        return ~closed

    # --- promises ---------------------------------------------------------------------------------

    def _hear(self, case: int, number: int, narrow: Punctuation) -> None:
        promise = self.stage.inputs[number].widened(narrow)
        book = self._book(case)
        book.heard[number].add(promise)
        book.questions.hear(stream_name(number), [promise])
        book.watch.hear(stream_name(number), [promise])
        self.changed = True

    def _naming_keys(self, number: int, blob: bytes) -> list[tuple[list[pa.Array], Ints]] | None:
        """Promises of an input as keys of the join and times; None if one says something else."""
        assert self.stage.keyed_join is not None
        place = self.stage.key_place[number]
        # Such name a value each, and so they have come to the bucket of that value only.
        if not self.lead and (short := in_short(blob)) is not None:
            return [([pa.array(short.values)], short.times)] if short.at == place else None
        promises = self._table(number, blob)
        if place is None:
            return None if len(promises) else []
        named = promises.naming(place)
        cases = [pa.array(named.cases)] if self.lead else []
        found = [(cases, named.values, named.times)]
        if len(named.places) < len(promises):
            type_ = self.stage.keyed_join.schema[-1].type.arrow
            left = np.delete(np.arange(len(promises)), named.places)
            for case, promise in promises.take(left).each():
                if any(isinstance(pattern, Nothing) for pattern in promise.patterns):
                    continue
                if only_column(promise) != place:
                    return None
                values = pattern_values(promise.patterns[place])
                if len(values) > 1 and self._judges_by_key(number):
                    return None  # If it is false for one of them, it does not count for any.
                cases = [pa.array([case] * len(values), pa.int64())][: self.lead]
                found.append((cases, pa.array(values, type_), np.full(len(values), promise.ts)))
        if any(values.null_count for _, values, _ in found):
            return None
        heard = []
        for cases, values, times in found:
            keys = [*cases, normal_doubles(values)]
            if self.spec.asks is not None:
                # A list can have values of other buckets as well.
                mine = bucket_of(keys, len(times), self.spec.buckets) == self.bucket
                keys, times = take_columns(keys, np.flatnonzero(mine)), times[mine]
            heard.append((keys, times))
        return heard

    def _judges_by_key(self, number: int) -> bool:
        return self.keyed is not None and self.stage.side_of[number] in self.keyed.seen

    def _table(self, number: int, blob: bytes) -> PromiseTable:
        return PromiseTable.from_bytes(blob, self.stage.inputs[number].columns)

    def _open_books(self) -> None:
        """From now on keep promises one by one: there are some about other things than keys."""
        keyed, self.keyed = self.keyed, None
        assert keyed is not None
        self.changed = True
        name = self.stage.plan.query.columns[0].name
        for case, known in opened(keyed).items():
            book = self._book(case)
            book.questions.adopt(name, known.open, known.done)
            for number, own in self.stage.inputs.items():
                side, place = self.stage.side_of[number], self.stage.key_place[number]
                for ts, value in known.pending[side]:
                    patterns = [Wildcard() for _ in own.columns]
                    promise = Punctuation(
                        ts, (*patterns[:place], Constant(value), *patterns[(place or 0) + 1 :])
                    )
                    self._hear(case, number, promise)
                if place is not None:
                    book.heard[number].close(place, known.shut[side])
        if keyed.seen:
            self.gates = self._new_gates()
            for number, gate in self.gates.items():
                gate.adopt(witnesses(keyed, self.stage.side_of[number]))

    def after(
        self, state: PlanState, watermark: int | None
    ) -> tuple[PlanState, dict[int, list[Question]]]:
        """The state without what nothing can need, and for each case what is closed since."""
        standings = {
            case: Standing(
                {stream_name(n): own.ledger(watermark) for n, own in book.heard.items()},
                watermark,
                book.questions,
                book.watch,
            )
            for case, book in self.books.items()
        }
        state, closed = self.stage.punctuator.after(state, standings)
        self.changed = self.changed or any(closed.values())
        for book in self.books.values():
            for own in book.heard.values():
                own.compact(watermark)
        return state, closed

    def told(self, closed: Mapping[int, Sequence[Question]], watermark: int) -> Frame:
        """Output punctuations as rows of sign 0; `at` is the column that each is about."""
        schema = self.stage.plan.nodes[self.stage.plan.root].operator.schema
        names = [column.name for column in schema[self.lead :]]
        made = [
            (case, names.index(name), value) for case, own in closed.items() for name, value in own
        ]
        columns: list[pa.Array] = []
        if self.lead:
            columns.append(pa.array([case for case, _, _ in made], pa.int64()))
        for place, column in enumerate(schema[self.lead :]):
            values = [value if at == place else None for _, at, value in made]
            columns.append(pa.array(values, column.type.arrow))
        times = np.full(len(made), watermark, np.int64)
        return Frame(
            columns,
            {
                "ts": times,
                "ets": times,
                "sign": np.zeros(len(made), np.int8),
                "at": np.array([at for _, at, _ in made], np.int64),
            },
            len(made),
        )

    def _told_keys(self, keys: Frame, watermark: int) -> Frame:
        """The same for keys of a join."""
        assert self.stage.keyed_join is not None
        schema = self.stage.plan.nodes[self.stage.plan.root].operator.schema
        nothing = [pa.nulls(len(keys), own.type.arrow) for own in schema[self.lead + 1 :]]
        times = np.full(len(keys), watermark, np.int64)
        return Frame(
            [*self.stage.keyed_join.space.columns(keys), *nothing],
            {
                "ts": times,
                "ets": times,
                "sign": np.zeros(len(keys), np.int8),
                "at": np.zeros(len(keys), np.int64),
            },
            len(keys),
        )

    # --- keeping ----------------------------------------------------------------------------------

    def pieces(self) -> Sequence[State]:
        """What is kept as columns and must survive a restart."""
        return [] if self.keyed is None else [self.keyed.pieces()]

    @staticmethod
    def all_in(stage: StagePunctuator, pieces: Sequence[State]) -> bool:
        """Whether the pieces that were kept are all that was: `to_bytes` had nothing to add."""
        judges = any(own.judged for own in stage.plan.spec.inputs)
        return bool(pieces) and (bool(stage.judged_sides) or not judges)

    def to_bytes(self) -> bytes | None:
        """What else must survive, if there is anything."""
        if self.keyed is not None and not self.gates:
            return None
        books = [
            [
                case,
                [[n, heard.to_json()] for n, heard in book.heard.items()],
                book.questions.to_json(),
            ]
            for case, book in self.books.items()
        ]
        gates = [[n, gate.to_json()] for n, gate in self.gates.items()]
        return json.dumps([None if self.keyed is not None else books, gates]).encode()

    @classmethod
    def restored(
        cls, stage: StagePunctuator, bucket: int, pieces: Sequence[State], data: bytes | None
    ) -> Keeper:
        """Undo `pieces` and `to_bytes`."""
        made = cls(stage, bucket)
        books, gates = json.loads(data) if data else (None, ())
        if pieces and made.keyed is not None:
            made.keyed = KeyedPromises(made.keyed.join, pieces[0], stage.judged_sides)
        elif books is not None:
            made.keyed, made.gates = None, made._new_gates()
        for n, known in gates:
            made.gates[n] = Gate(made.gates[n].columns, made.spec.scoped, known)
        for case, heard, asked in books or ():
            book = made._book(case)
            for n, written in heard:
                book.heard[n] = PromiseBook.from_json(written, stage.inputs[n].all_columns)
                book.questions.hear(stream_name(n), book.heard[n].promises)
                book.watch.hear(stream_name(n), book.heard[n].promises)
            book.questions.restore(asked)
        return made


class _Seen:
    """The rows of an input, with all columns that promises or questions can be about."""

    def __init__(self, rows: Frame, promised: Promised, lost: Sequence[int], lead: int) -> None:
        self.promised = promised
        self.lead = lead
        self.columns: dict[int, pa.Array] = dict(
            zip(promised.seen_at, rows.columns[lead:], strict=False)
        )
        """By their places among all columns."""
        hidden = rows.columns[lead + len(promised.visible) :]
        self.columns.update(zip(lost, hidden, strict=True))
        self.scope = list(rows.columns[:lead])
        self.length = len(rows)
        self._kinds: dict[tuple[int, ...], tuple[Ints, list[tuple[int, Row]]]] = {}

    def kinds(self, places: Sequence[int]) -> tuple[Ints, list[tuple[int, Row]]]:
        """The kind of each row by the case and these columns, and each kind as a row.

        Such a row has NULLs in the other columns.
        """
        asked = tuple(places)
        if asked not in self._kinds:
            self._kinds[asked] = self._found(asked)
        return self._kinds[asked]

    def _found(self, places: Sequence[int]) -> tuple[Ints, list[tuple[int, Row]]]:
        chosen = [self.columns[at] for at in places]
        identity = identified([*self.scope, *chosen], self.length)
        picked = pa.array(identity.first)
        every = self.promised.all_columns
        lists: list[list[Value]] = [[None] * identity.count for _ in every]
        for at, column in zip(places, chosen, strict=True):
            lists[at] = python_values(column.take(picked), every[at])
        cases = int_view(self.scope[0].take(picked)).tolist() if self.lead else [0] * identity.count
        rows = zip(*lists, strict=True)
        return identity.ids, list(zip(cases, rows, strict=True))


def _listed(promises: Mapping[int, Sequence[bytes]]) -> list[tuple[int, bytes]]:
    return [(number, blob) for number, blobs in promises.items() for blob in blobs]


def _time(promise: Punctuation) -> int:
    return promise.ts


def canonical(rows: Frame) -> Frame:
    """Entries without those that cancel each other at one instant.

    What a punctuation rules out is a new row, so none may seem to come.
    """
    minus = rows["sign"] < 0
    if not bool(minus.any()) or bool(minus.all()):
        return rows
    times = pa.array(rows["ts"])
    kind = identified([*rows.columns, times], len(rows)).ids
    net = np.bincount(kind, weights=rows["sign"]).astype(np.int64)
    copies = np.bincount(kind)
    if bool((np.abs(net) == copies).all()):
        return rows
    # Of each kind as many rows stay as it has more of one sign, and they have that sign.
    order = np.argsort(kind, kind="stable")
    starts = np.searchsorted(kind[order], np.arange(len(net)))
    wanted = rows["sign"][order] == np.sign(net)[kind[order]]
    # Ranks among the rows of the wanted sign alone.
    before = np.cumsum(wanted) - wanted
    rank = before - before[starts[kind[order]]]
    keep = wanted & (rank < np.abs(net)[kind[order]])
    return rows.take(np.sort(order[keep]))
