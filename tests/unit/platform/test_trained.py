"""The path that trains: from its tip to its root, and nothing beside it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentworld.platform.trained import trained_step_ids

TREES = st.lists(st.integers(0, 30), max_size=30).map(
    lambda picks: {str(n): None if pick >= n else str(pick) for n, pick in enumerate(picks)}
)


@given(TREES, st.data())
def test_the_path_holds_its_tip_one_root_and_the_parent_of_every_other(tree, data):
    tip = data.draw(st.sampled_from(sorted(tree))) if tree else None
    path = trained_step_ids(tree, tip=tip)
    assert (tip in path) == (tip is not None)
    parents = [tree[step_id] for step_id in path]
    assert parents.count(None) == (1 if path else 0)
    assert {parent for parent in parents if parent} == path - {tip}


def test_no_tip_an_unknown_tip_and_a_circle_end():
    assert trained_step_ids({"a": None}, tip=None) == frozenset()
    assert trained_step_ids({"a": None}, tip="gone") == frozenset()
    assert trained_step_ids({"a": "b", "b": "a"}, tip="a") == {"a", "b"}


def test_a_path_ends_at_a_superseded_step():
    assert trained_step_ids({"root": None, "tip": "superseded"}, tip="tip") == {"tip"}
