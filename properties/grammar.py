"""Well-typed queries, grown from choices.

Every builder makes something that is right by construction: names exist, types fit, what
`Distinct(on=...)` leaves open is not looked at, no number overflows, and nothing above an average
depends on its last bits. So nothing has to be thrown away, and every choice can be made simpler.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from properties import pools
from properties.dice import Dice, chance, pick, some
from properties.flow import (
    aggregated,
    blurred,
    joined_weight,
    magnitude,
    magnitudes,
    most_rows,
    weight,
)
from reference.aggregates import BUILT_IN, STANDARD, Aggregate, user_function
from reference.expressions import ARITHMETIC, COMPARISONS, Call, Col, Expr, Lit
from reference.query import (
    OPERATORS,
    Distinct,
    GroupBy,
    Intersect,
    Join,
    Minus,
    Project,
    Query,
    Select,
    Source,
    Union,
    Windowed,
    WindowJoin,
    Within,
)
from reference.streams import Column
from reference.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, Type
from reference.windows import Range, Rows, Unbounded, Window

LARGEST_PRODUCT = 2**20
LARGEST_SUM = 2**62


@dataclass(frozen=True)
class World:
    """The streams that a query may read, and the names that it may give."""

    sources: tuple[Source, ...]
    names: tuple[str, ...] = pools.PLAIN_NAMES
    aliases: tuple[str, ...] = pools.ALIASES
    operators: tuple[str, ...] = tuple(OPERATORS)
    """The operators that a query may be made of."""
    heaviest: int = 8
    """The largest weight (see `flow.weight`) that a join may have."""

    def fresh(self, taken: Collection[str]) -> str:
        """A name that is not taken; engines fold case, so names that fold alike count as taken."""
        folded = {name.lower() for name in taken}
        round_ = 0
        while True:
            for name in self.names:
                candidate = f"{name}{round_ or ''}"
                if candidate.lower() not in folded:
                    return candidate
            round_ += 1


# --- streams and windows --------------------------------------------------------------------------


def world(
    dice: Dice,
    types: Sequence[Type] = pools.TYPES,
    names: tuple[str, ...] = pools.PLAIN_NAMES,
    streams: tuple[str, ...] = pools.STREAM_NAMES,
    aliases: tuple[str, ...] = pools.ALIASES,
    operators: Sequence[str] = tuple(OPERATORS),
    heaviest: int = 8,
) -> World:
    """One to three streams; they share a key, sometimes two or none, and have own columns."""
    namer = World((), names)
    taken: list[str] = []

    def column(type_: Type) -> Column:
        taken.append(namer.fresh(taken))
        return Column(taken[-1], type_)

    key_type, own_type = pick(dice, types), pick(dice, types)
    keys = [column(key_type) for _ in range(pick(dice, (1, 1, 1, 1, 2)))]
    strangers = chance(dice, 8)
    sources = []
    for number in range(pick(dice, (1, 2, 2, 2, 3))):
        if strangers and number:
            keys = [column(key_type)]
        own = [column(own_type if dice.below(3) else pick(dice, types))]
        own += [column(pick(dice, types))] * chance(dice, 4)
        sources.append(Source(streams[number], *keys, *([] if chance(dice, 8) else own)))
    return World(tuple(sources), names, aliases, tuple(operators), heaviest)


def window(dice: Dice, columns: Sequence[Column]) -> Window:
    """Any window over a stream with these columns."""
    kind = pick(dice, ("range", "range", "range", "closed", "closed", "rows", "rows", "unbounded"))
    if kind == "range":
        return Range(length(dice, 1))
    if kind == "closed":
        return Range(length(dice, 0), bounds="[]")
    if kind == "unbounded":
        return Unbounded()
    names = [column.name for column in columns]
    partition_by = (pick(dice, names),) if chance(dice, 2) else ()
    order_by = tuple(some(dice, names[::-1])) if chance(dice, 2) else ()
    return Rows(pick(dice, (1, 2, 2, 3, 100)), partition_by, order_by)


def length(dice: Dice, least: int) -> int:
    """The length of a range of time: short, or longer than time itself."""
    if chance(dice, 20):
        return pick(dice, pools.HUGE_LENGTHS)
    return pick(dice, (*pools.LENGTHS, least))


# --- expressions ----------------------------------------------------------------------------------


def expression(
    dice: Dice, columns: Sequence[Column], type_: Type, sizes: dict[str, int], depth: int = 2
) -> Expr:
    """An expression of a type over the columns; `sizes` says how large their values get."""
    own = [Col(column.name) for column in columns if column.type == type_]
    kinds = ["column"] * 4 * bool(own) + ["literal"]
    if depth > 0:
        kinds += ["if", "coalesce"]
        kinds += ["arithmetic"] * 2 * (type_ in (BIGINT, DOUBLE))
    if type_ == BOOLEAN and depth >= 0:
        kinds += ["comparison", "comparison", "comparison", "is_null"]
        kinds += ["and", "or", "not"] * (depth > 0)

    def part(of: Type) -> Expr:
        return expression(dice, columns, of, sizes, depth - 1)

    kind = pick(dice, kinds)
    match kind:
        case "column":
            return pick(dice, own)
        case "literal":
            return literal(dice, type_)
        case "if":
            return Call("if", (part(BOOLEAN), part(type_), part(type_)))
        case "coalesce":
            return Call("coalesce", tuple(part(type_) for _ in range(pick(dice, (2, 2, 3)))))
        case "arithmetic":
            return _arithmetic(dice, type_, part, sizes)
        case "comparison":
            return _comparison(dice, columns, part)
        case "and" | "or":
            return Call(kind, (part(BOOLEAN), part(BOOLEAN)))
        case "not":
            return Call("not", (part(BOOLEAN),))
    return Call("is_null", (part(pick(dice, _types_at_hand(columns))),))


def literal(dice: Dice, type_: Type) -> Lit:
    """A calm literal of a type, mostly one that streams hold, sometimes NULL."""
    values = pools.calm(type_)
    return Lit(pick(dice, (*values[:3], *values[:3], *values, None)), type_)


def _types_at_hand(columns: Sequence[Column]) -> Sequence[Type]:
    return [column.type for column in columns] or pools.TYPES


def _arithmetic(
    dice: Dice, type_: Type, part: Callable[[Type], Expr], sizes: dict[str, int]
) -> Expr:
    operator = pick(dice, ARITHMETIC)
    operands = (BIGINT, INTEGER) if type_ == BIGINT else (DOUBLE, DOUBLE, BIGINT, INTEGER)
    left, right = part(type_), part(pick(dice, operands))
    if chance(dice, 2):
        left, right = right, left
    made = Call(operator, (left, right))
    if magnitude(made, sizes) > LARGEST_PRODUCT:
        # Too large to go on with: compute with something small instead.
        made = Call("+", (literal(dice, type_), Lit(2, INTEGER)))
    return made


def _comparison(dice: Dice, columns: Sequence[Column], part: Callable[[Type], Expr]) -> Expr:
    type_ = pick(dice, _types_at_hand(columns))
    own = [Col(column.name) for column in columns if column.type == type_]
    left: Expr = pick(dice, own) if own and not chance(dice, 4) else part(type_)
    right: Expr
    if chance(dice, 8):
        # A literal that only a value like it can equal.
        right = Lit(pick(dice, pools.wild(type_) or pools.calm(type_)), type_)
    else:
        others = [t for t in pools.TYPES if t != type_ and t.comparable_with(type_)]
        right = part(pick(dice, (*[type_] * 6, *others)))
        if right == left:
            right = literal(dice, type_)
    # Rows should pass as often as not, so the comparisons that most values meet come up more.
    return Call(pick(dice, ("!=", ">=", "<=", ">=", "<=", *COMPARISONS)), (left, right))


def predicate(dice: Dice, below: Query, columns: Sequence[Column]) -> Expr:
    """A condition on the columns that is not a mere literal."""
    sizes = magnitudes(below)

    def part(of: Type) -> Expr:
        return expression(dice, columns, of, sizes, depth=0)

    if chance(dice, 3):
        made = expression(dice, columns, BOOLEAN, sizes)
        if not isinstance(made, Lit):
            return made
    return _comparison(dice, columns, part)


# --- operators ------------------------------------------------------------------------------------


def query(dice: Dice, world: World, depth: int, root: str | None = None) -> Query:
    """A query of at most this depth; `root` names the operator on top.

    Projections that only make columns fit together do not count.
    """
    if root is None:
        known = [operator for operator in _GROWTH if operator in world.operators]
        root = pick(dice, known) if depth > 0 and known else "window"
    return BUILDERS[root](dice, world, depth)


def _input(dice: Dice, world: World, depth: int) -> Query:
    return query(dice, world, depth - 1)


def _windowed(dice: Dice, world: World, depth: int) -> Query:
    source = pick(dice, world.sources)
    return Windowed(source, window(dice, source.columns))


def _select(dice: Dice, world: World, depth: int) -> Query:
    below = _input(dice, world, depth)
    return Select(below, predicate(dice, below, _visible(below)))


def _project(dice: Dice, world: World, depth: int) -> Query:
    below = _input(dice, world, depth)
    visible, sizes = _visible(below), magnitudes(below)
    passed = [column for column in below.columns if column.name not in below.free]
    items: list[tuple[str, Expr]] = []
    for column in some(dice, passed, least=1 - chance(dice, 6)):
        items.append((column.name, Col(column.name)))
    if not items or chance(dice, 2):
        type_ = pick(dice, (*_types_at_hand(visible), BIGINT, BOOLEAN, pick(dice, pools.TYPES)))
        name = world.fresh([name for name, _ in items])
        items.append((name, expression(dice, visible, type_, sizes)))
    return Project(below, tuple(items))


def _join(dice: Dice, world: World, depth: int) -> Query:
    inputs = [_closed(_input(dice, world, depth))]
    for _ in range(pick(dice, (1, 1, 1, 2))):
        inputs.append(_closed(query(dice, world, pick(dice, (0, 0, min(depth - 1, 1))))))
    on = _shared(inputs)
    if len(on) > 1 and not chance(dice, 3):
        on = on[:1]
    if on and chance(dice, 4):
        on = []
    while joined_weight([weight(part) for part in inputs], bool(on)) > world.heaviest:
        # Too much to combine: let the heaviest part be a plain window, or do with fewer parts.
        at = max(range(len(inputs)), key=lambda n: weight(inputs[n]))
        if weight(inputs[at]) > 2:
            inputs[at] = _windowed(dice, world, 0)
        else:
            del inputs[at]
        on = _shared(inputs)[:1]
    return _joined(dice, world, inputs, on)


def _joined(dice: Dice, world: World, inputs: Sequence[Query], on: Sequence[str]) -> Query:
    taken = list(on)
    parts: list[Query] = []
    for part in inputs:
        parts.append(_renamed(part, on, taken, world))
        taken += [column.name for column in parts[-1].columns if column.name not in on]
    if on and not chance(dice, 4):
        return Join(tuple(parts), tuple(on))
    whole = Join(tuple(parts), tuple(on), Lit(True, BOOLEAN))
    return Join(whole.inputs, whole.on, predicate(dice, whole, _visible(whole)))


def _shared(inputs: Sequence[Query]) -> list[str]:
    """The columns that all inputs have, with one type, and that are exact in all."""
    shared = [column for column in inputs[0].columns if column.name not in blurred(inputs[0])]
    for other in inputs[1:]:
        dim = blurred(other)
        shared = [c for c in shared if c in other.columns and c.name not in dim]
    return [column.name for column in shared]


def _renamed(below: Query, kept: Sequence[str], taken: Sequence[str], world: World) -> Query:
    """The query with new names for the columns whose own are taken."""
    folded = {name.lower() for name in taken}
    names: dict[str, str] = {name: name for name in kept}
    for column in below.columns:
        if column.name in names:
            continue
        name = column.name
        if name.lower() in folded or name in names.values():
            name = world.fresh([*taken, *names.values(), *(c.name for c in below.columns)])
        names[column.name] = name
    if all(old == new for old, new in names.items()):
        return below
    return Project(below, tuple((names[c.name], Col(c.name)) for c in below.columns))


def _union(dice: Dice, world: World, depth: int) -> Query:
    left = _closed(_input(dice, world, depth))
    return Union(left, _alike(dice, world, depth, left))


def _intersect(dice: Dice, world: World, depth: int) -> Query:
    left = _exact(_input(dice, world, depth), world)
    return Intersect(left, _alike(dice, world, depth, left))


def _minus(dice: Dice, world: World, depth: int) -> Query:
    left = _exact(_input(dice, world, depth), world)
    return Minus(left, _alike(dice, world, depth, left))


def _alike(dice: Dice, world: World, depth: int, left: Query) -> Query:
    """Another query, with columns of the same types and, often, the same rows now and then."""
    wanted = [column.type for column in left.columns]
    near = [s for s in world.sources if [c.type for c in s.columns] == wanted]
    match pick(dice, ("source", "windows", "other") if near else ("windows", "other")):
        case "source":
            source = pick(dice, near)
            return Windowed(source, window(dice, source.columns))
        case "windows":
            return _other_windows(dice, left)
    right = _exact(query(dice, world, pick(dice, (0, depth - 1))), world)
    if [column.type for column in right.columns] == wanted:
        return right
    sizes = magnitudes(right)
    items: list[tuple[str, Expr]] = []
    for column in left.columns:
        items.append((column.name, expression(dice, right.columns, column.type, sizes, depth=1)))
    return Project(right, tuple(items))


def _other_windows(dice: Dice, below: Query) -> Query:
    """The same query over other windows."""

    def again(child: Query) -> Query:
        return _other_windows(dice, child)

    match below:
        case Windowed(source):
            return Windowed(source, window(dice, source.columns))
        case Join(inputs):
            return replace(below, inputs=tuple(map(again, inputs)))
        case Union(left, right) | Intersect(left, right) | Minus(left, right):
            return replace(below, left=again(left), right=again(right))
        case Select(child) | Project(child) | Distinct(child) | GroupBy(child):
            return replace(below, input=again(child))
    return below


def _distinct(dice: Dice, world: World, depth: int) -> Query:
    below = _exact(_input(dice, world, depth), world)
    if chance(dice, 3):
        return Distinct(below, tuple(some(dice, [c.name for c in below.columns], least=1)))
    return Distinct(below)


def _group_by(dice: Dice, world: World, depth: int) -> Query:
    below = _input(dice, world, depth)
    visible = _visible(below)
    names = [column.name for column in visible]
    keys = [] if chance(dice, 3) else some(dice, names, least=min(1, len(names)))[:2]
    taken = list(keys)
    aggregates: list[Aggregate] = []
    for _ in range(pick(dice, (1, 1, 2, 3)) if not (keys and chance(dice, 8)) else 0):
        aggregates.append(aggregate(dice, below, visible, world.fresh(taken)))
        taken.append(aggregates[-1].name)
    return GroupBy(below, tuple(keys), tuple(aggregates))


def aggregate(dice: Dice, below: Query, columns: Sequence[Column], name: str) -> Aggregate:
    """An aggregate that fits the rows below."""
    sizes, rows = magnitudes(below), most_rows(below)
    function = pick(dice, _functions(columns))
    if function == "count" and chance(dice, 2):
        return Aggregate(name, "count")
    if function not in BUILT_IN:
        wanted = list(user_function(function).takes)
    elif function in ("count", "min", "max"):
        wanted = [pick(dice, _types_at_hand(columns))]
    else:
        wanted = [pick(dice, [t for t in _types_at_hand(columns) if t.is_numeric])]
    args = tuple(expression(dice, columns, type_, sizes, depth=1) for type_ in wanted)
    most = aggregated(function, [magnitude(arg, sizes) for arg in args], rows)
    if function in ("sum", "weighted_sum") and most > LARGEST_SUM:
        function, args = "max", args[:1]
    return Aggregate(name, function, args)


def _functions(columns: Sequence[Column]) -> list[str]:
    """The aggregates that these columns give something to work on."""
    types = _types_at_hand(columns)
    found = ["count", "max", "min"] * 2
    if any(type_.is_numeric for type_ in types):
        found += ["sum", "avg", "median", "stddev"] * 2
    return found + [made.name for made in STANDARD if set(made.takes) <= {*types}]


def _window_join(dice: Dice, world: World, depth: int) -> Query:
    # Columns that stand twice must be shared, so a stream meets itself on all of its columns.
    sources = list(world.sources) if len(world.sources) > 1 else [*world.sources] * 2
    inputs = tuple(zip(world.aliases, sources, strict=False))[: pick(dice, (3, 2))]
    on = [c.name for c in sources[0].columns if all(c in s.columns for _, s in inputs)]
    if joined_weight([2] * len(inputs), bool(on)) > world.heaviest:
        inputs = inputs[:2]
    within = []
    for at, (one, _) in enumerate(inputs):
        for other, _ in inputs[at + 1 :]:
            if not chance(dice, 3):
                pair = (other, one) if chance(dice, 3) else (one, other)
                within.append(Within(*pair, length(dice, 0)))
    made = WindowJoin(inputs, tuple(within), tuple(on), None, directed=chance(dice, 2))
    if not chance(dice, 4):
        return made
    theta = predicate(dice, made, made.columns)
    return WindowJoin(inputs, made.within, made.on, theta, made.directed)


BUILDERS: dict[str, Callable[[Dice, World, int], Query]] = {
    "window": _windowed,
    "select": _select,
    "project": _project,
    "distinct": _distinct,
    "union": _union,
    "group_by": _group_by,
    "join": _join,
    "minus": _minus,
    "intersect": _intersect,
    "window_join": _window_join,
}
_GROWTH = (*BUILDERS, "join", "group_by", "minus")


# --- what may be looked at ------------------------------------------------------------------------


def _visible(below: Query) -> list[Column]:
    """The columns that are neither left open nor blurred."""
    hidden = below.free | blurred(below)
    return [column for column in below.columns if column.name not in hidden]


def _closed(below: Query) -> Query:
    """The query without the columns that it leaves open."""
    return _only(below, [c for c in below.columns if c.name not in below.free])


def _exact(below: Query, world: World) -> Query:
    """The query with visible columns only; if it has none, with a constant one."""
    visible = _visible(below)
    if not visible:
        return Project(below, ((world.fresh(()), Lit(1, BIGINT)),))
    return _only(below, visible)


def _only(below: Query, columns: Sequence[Column]) -> Query:
    if len(columns) == len(below.columns):
        return below
    return Project(below, tuple((column.name, Col(column.name)) for column in columns))
