"""How far a partition may be committed, while its records are done out of order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentworld.contract.events import Place
from stream_processors.evaluators.progress import Progress


def place(offset: int, partition: int = 0) -> Place:
    return Place(topic="trajectories", partition=partition, offset=offset)


@given(st.data())
def test_no_position_passes_a_record_that_is_not_done_and_all_done_is_all_committed(
    data: st.DataObject,
) -> None:
    places = [place(3 * offset, partition) for partition in (0, 1) for offset in range(8)]
    progress, done = Progress(), set()
    committed: dict[int, int] = {}
    for each in places:
        assert progress.begin(each)
    for each in data.draw(st.permutations(places)):
        progress.done(each)
        done.add((each.partition, each.offset))
        if data.draw(st.booleans()):
            positions = progress.positions()
            progress.committed(positions)
            committed |= {partition: position for (_, partition), position in positions.items()}
        for other in places:
            if other.offset < committed.get(other.partition, 0):
                assert (other.partition, other.offset) in done
    positions = progress.positions()
    progress.committed(positions)
    committed |= {partition: position for (_, partition), position in positions.items()}
    assert committed == {0: 22, 1: 22}
    assert progress.positions() == {}


def test_a_redelivery_of_what_is_under_way_is_not_begun_again() -> None:
    progress = Progress()
    assert [progress.begin(place(1)), progress.begin(place(1))] == [True, False]
    progress.done(place(1))
    assert progress.begin(place(1)) is False
    progress.committed(progress.positions())
    assert progress.begin(place(1)) is True
