"""Pairs of logs as failovers leave them, for Hypothesis to draw."""

from hypothesis import strategies as st

from tests.replication.follower.model_log import ModelLog, Toy


@st.composite
def histories(draw: st.DrawFn) -> tuple[ModelLog, ModelLog]:
    """Two logs that leaders wrote: each epoch has one leader, which writes an offset once.

    A common past; then epochs that one of the two wrote alone, never both, so that an
    epoch and an offset always name one record.
    """
    past = []
    epoch, offset = 0, 0
    for _ in range(draw(st.integers(0, 3))):
        length = draw(st.integers(1, 4))
        past += [Toy(offset + at, epoch) for at in range(length)]
        offset, epoch = offset + length, epoch + draw(st.integers(1, 2))
    logs = []
    # Both may hold the first records of one epoch's leader, one of them fewer.
    kept = [draw(st.integers(0, len(past))), len(past)]
    for length in draw(st.permutations(kept)):
        log = ModelLog()
        log.append(past[:length])
        logs.append(log)
    for _ in range(draw(st.integers(0, 6))):
        log = logs[draw(st.integers(0, 1))]
        end = log.log_end_offset
        log.append(Toy(end + at, epoch) for at in range(draw(st.integers(1, 4))))
        epoch += draw(st.integers(1, 2))
    leader, follower = logs
    # A leader opens its own epoch before it serves anybody.
    leader.assign(epoch, leader.log_end_offset)
    return leader, follower
