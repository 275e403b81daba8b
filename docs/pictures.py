"""The pictures of the documentation, made from fixtures: `python -m docs.pictures` writes them."""

from __future__ import annotations

from pathlib import Path

import fixtures
from conformance.check import as_batch
from conformance.judge import judge
from conformance.picture import svg
from conformance.runformat import run_from_json
from conformance.timeline import timeline
from reference import Range, Source, parse_lanes
from reference.case import Case

HERE = Path(__file__).parent
PICTURES = {"counterexample.svg": "bug-representative-expires", "idle-items.svg": "idle-items"}


def picture(name: str) -> str:
    """A fixture with the wrong run that is stored for it, or the tutorial's answer, as an SVG."""
    if name == "idle-items":
        return svg(timeline(idle_items()))
    case, stored = fixtures.load(name), fixtures.wrong(name)
    assert stored is not None
    run = run_from_json(case, stored["steps"])
    verdict = judge(case, run).verdicts[stored["level"]]
    # Without steps and watermarks, which this picture is not about.
    return svg(timeline(as_batch(case), actual=run.answers(), wrong_at=verdict.instant))


def idle_items() -> Case:
    """The tutorial on streams, in minutes after 12:00."""
    auctions = Source("auctions", "v bigint").window(Range(60))
    bids = Source("bids", "v bigint").window(Range(15))
    lanes = parse_lanes("auctions: 1@0 2@10 3@40 | bids: 1@20 3@42")
    return lanes.case(auctions.minus(bids))


def main() -> None:
    for file, name in PICTURES.items():
        (HERE / file).write_text(picture(name), encoding="utf-8")


if __name__ == "__main__":
    main()
