"""No collection falls into the start of a cluster, and afterwards all is as it was."""

import gc
from collections.abc import Iterator

import pytest

from replication.testing import ThreadedCluster
from replication.testing.collector import collector_put_off


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_it_is_back_when_the_last_has_done() -> None:
    first, second = collector_put_off(), collector_put_off()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled(), "somebody still starts"
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_it_is_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="no cluster"), collector_put_off():
        raise ValueError("no cluster")
    assert gc.isenabled()


def test_of_who_has_switched_it_off_it_stays_off() -> None:
    gc.disable()
    with collector_put_off():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_nothing_is_collected_while_brokers_start() -> None:
    """With a collection due at every hundredth object, a start would see hundreds."""
    seen: list[str] = []

    def note(phase: str, _: dict[str, int]) -> None:
        seen.append(phase)

    before, (threshold, *others) = gc.isenabled(), gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(100, *others)
    try:
        with ThreadedCluster(brokers=1):
            assert gc.isenabled() is before
            during = len(seen)
    finally:
        gc.set_threshold(threshold, *others)
        gc.callbacks.remove(note)
    assert during < 50
