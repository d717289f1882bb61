"""Names that outlive a refit: matched by the images that groups share."""

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from protofission.triage.workbench.match_names import (
    NO_SUCCESSOR,
    NamedGroup,
    count_shared,
    match_groups,
    match_names,
)


def groups_of(numbers, count):
    numbers = np.array(numbers)
    return [np.flatnonzero(numbers == number) for number in range(count)]


numbers = st.lists(st.integers(-1, 3), min_size=1, max_size=25)


@given(numbers, st.randoms())
def test_the_matching_shares_most_images_of_all_matchings(old_numbers, random):
    new_numbers = [random.choice([number, 0, 1, 2]) for number in old_numbers]
    old, new = groups_of(old_numbers, 4), groups_of(new_numbers, 3)
    found = match_groups(old, new)
    used = [place for place in found.tolist() if place != NO_SUCCESSOR]
    assert len(set(used)) == len(used)

    def shared(one, two):
        both = len(set(one.tolist()) & set(two.tolist()))
        return both if both and 2 * both >= min(len(one), len(two)) else 0

    best = max(
        sum(shared(old[a], new[b]) for a, b in enumerate(order) if b < 3)
        for order in permutations([0, 1, 2, 3])
    )
    assert sum(shared(old[a], new[b]) for a, b in enumerate(found.tolist()) if b >= 0) == best
    assert all(shared(old[a], new[b]) for a, b in enumerate(found.tolist()) if b >= 0)
    twin = [[len(set(a.tolist()) & set(b.tolist())) for b in new] for a in old]
    assert count_shared(old, new).tolist() == twin


def test_sentences_say_what_was_kept_and_where_the_rest_went():
    striped, blurry = np.arange(45), np.arange(50, 62)
    new = [np.array([*range(41), 70, 71]), np.array([50, 51])]
    places = ["in 'cat / 1'"] * 80
    for row in range(50, 57):
        places[row] = "in 'cat / 2'"
    for row in range(57, 60):
        places[row] = "labeled 'dog'"
    places[60], places[61] = "rejected", "in 'novel 1'"
    named = [NamedGroup("striped", striped), NamedGroup("blurry", blurry)]
    one, two = match_names(named, [new[0], np.array([80])], [*places, "rejected"])
    assert (one.successor, one.sentence) == (
        0,
        "'striped' keeps 41 of 45 images, and 2 others joined.",
    )
    assert two.successor == NO_SUCCESSOR
    assert two.sentence == (
        "'blurry' has no successor: its 12 images are now in 'cat / 2' (7), labeled 'dog' (3), "
        "rejected (1) and elsewhere (1)."
    )


def test_a_small_share_is_no_successor_and_nothing_matches_nothing():
    assert match_groups([np.arange(20)], [np.arange(16, 60)]).tolist() == [NO_SUCCESSOR]
    assert match_groups([], [np.arange(3)]).tolist() == []
    assert match_groups([np.arange(3)], []).tolist() == [NO_SUCCESSOR]
    assert match_groups([np.arange(0)], [np.arange(3)]).tolist() == [NO_SUCCESSOR]
    (gone,) = match_names([NamedGroup("gone", np.arange(0))], [np.arange(3)], [""] * 3)
    assert gone.sentence == "'gone' has no successor."
