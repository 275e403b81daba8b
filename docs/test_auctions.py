"""The auctions of docs/auctions.md, in a house that is small enough to run with every test."""

from __future__ import annotations

import pytest

from docs.examples.auctions import PAGE, PLOT, Findings, House, Outcome, run, session
from docs.peers_table import part

SMALL = House(
    steps=4,
    step=900,
    window=1_800,
    auctions_a_step=8,
    most_bids=16,
    open_for=(300, 1_200),
    long_ones=0.2,
)


spark = pytest.mark.spark
group = pytest.mark.xdist_group("spark")


@spark
@group
def test_the_auctions_show_what_the_page_says() -> None:
    auctions = SMALL.auctions()
    promised = run(session(), SMALL, auctions, punctuated=True)
    found = Findings(SMALL, auctions, promised, Outcome())
    over = found.over()
    outlasting = [each for each in over if each.closes >= each.opens + SMALL.window]
    assert len(outlasting) >= 2
    assert len(over) - len(outlasting) >= 5
    assert len(over) < len(auctions)

    # Counts come out when an auction closes or its window has passed, and no others do.
    assert set(promised.told_at) == {each.item for each in over}
    for each in over:
        assert promised.counts.get(each.item, 0) == each.counted(SMALL.window)
        ends = min(each.closes, each.opens + SMALL.window)
        assert ends <= promised.told_at[each.item] < ends + SMALL.step

    # The join holds the auctions that are open, and what came in last and waits for the watermark;
    # after the last micro-batch nothing waits.
    open_before = [0, *found.open_auctions()]
    arriving = [*found.arriving(), 0]
    for held, still_open, waiting in zip(promised.held_by_join, open_before, arriving, strict=True):
        assert held <= still_open + waiting
    assert promised.held_by_join[-1] == open_before[-1]
    # So does the group-by: one row for each group that is open.
    assert promised.held_by_counts[-1] <= open_before[-1]


@spark
@group
@pytest.mark.soak
def test_without_promises_all_that_is_in_a_window_is_held() -> None:
    auctions = SMALL.auctions()
    plain = run(session(), SMALL, auctions, punctuated=False)
    found = Findings(SMALL, auctions, Outcome(), plain)
    for each in found.over():
        assert plain.counts.get(each.item, 0) == each.counted(SMALL.window)
    assert not plain.told_at
    # Two steps are in the window, and one waits.
    arriving = found.arriving()
    for at in range(2, SMALL.steps):
        assert plain.held_by_join[at] >= arriving[at] + arriving[at - 1]


def test_the_page_shows_a_run_of_the_example() -> None:
    """The numbers themselves come from `python -m docs.examples.auctions`."""
    house = House()
    auctions = house.auctions()
    bids = sum(len(each.bids) for each in auctions)
    shown = part(PAGE.read_text(encoding="utf-8"), "run")
    assert f"{len(auctions):,} auctions and {bids:,} bids in {house.steps} steps" in shown
    assert "no promises" in PLOT.read_text(encoding="utf-8")
