"""The compiled codec, on messages made up to hold what the real ones do not."""

import struct
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from replication.errors import ProtocolError
from replication.wire.codec import decode, encode
from replication.wire.primitives import read_uvarint, skip_tags, uvarint
from replication.wire.schema import (
    Kind,
    Versions,
    array,
    boolean,
    define,
    float64,
    int8,
    int32,
    int64,
    octets,
    string,
    struct as nested,
    uint16,
    uuid,
)


@attrs.frozen(kw_only=True)
class Pair:
    left: int = int32()
    right: str = string()


@define(kw_only=True)
class Item:
    number: int = int64()
    added: int = int8("1+", default=-1)
    name: str | None = string("2+", nullable="2+", tag=0, default=None)


@define(kw_only=True)
class Everything:
    """Flexible from version 2."""

    flag: bool = boolean()
    port: int = uint16()
    share: float = float64()
    raw: bytes | None = octets(nullable="1+")
    pair: Pair = nested(Pair, default=Pair())
    names: list[str] = array(Kind.STRING)
    flags: list[bool] = array(Kind.BOOL)
    ids: list[bytes] | None = array(Kind.UUID, "1+", nullable="2+")
    items: list[Item] = array(Item)
    epoch: int = int64("2+", default=-1, tag=7)
    topic_id: bytes = uuid("2+", tag=3)
    numbers: list[int] = array(Kind.INT32, "2+", tag=5)
    spare: Pair = nested(Pair, "2+", default=Pair(), tag=4)


STRINGS = st.text(max_size=5) | st.integers(100, 300).map(lambda size: "x" * size)
IDS = st.binary(min_size=16, max_size=16)
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
PAIRS = st.builds(Pair, left=INT32, right=STRINGS)


def everything(version: int) -> st.SearchStrategy[Everything]:
    """Objects that say nothing which `version` cannot carry."""
    items = st.builds(
        Item,
        number=INT64,
        added=st.integers(-128, 127) if version >= 1 else st.just(-1),
        name=st.none() | STRINGS if version >= 2 else st.none(),
    )
    always: dict[str, st.SearchStrategy[Any]] = {
        "flag": st.booleans(),
        "port": st.integers(0, 65535),
        "share": st.floats(allow_nan=False),
        "raw": st.binary(max_size=200) if version < 1 else st.none() | st.binary(max_size=200),
        "pair": PAIRS,
        "names": st.lists(STRINGS, max_size=4),
        "flags": st.lists(st.booleans(), max_size=4),
        "items": st.lists(items, max_size=4) | st.lists(items, min_size=130, max_size=140),
    }
    ids: dict[str, st.SearchStrategy[Any]] = {
        "ids": st.lists(IDS, max_size=3) | (st.none() if version >= 2 else st.nothing())
    }
    tagged: dict[str, st.SearchStrategy[Any]] = {
        "epoch": INT64,
        "topic_id": IDS,
        "numbers": st.lists(INT32, max_size=3),
        "spare": PAIRS,
    }
    chosen = always | (ids if version >= 1 else {}) | (tagged if version >= 2 else {})
    return st.builds(Everything, **chosen)


def written(message: object, version: int) -> bytes:
    parts = encode(message, version=version, flexible=version >= 2)
    return b"".join(part for part in parts if isinstance(part, bytes))


@pytest.mark.parametrize("version", [0, 1, 2])
@given(data=st.data())
def test_a_written_message_is_read_back(data: st.DataObject, version: int) -> None:
    message = data.draw(everything(version))
    body = memoryview(written(message, version))
    assert decode(Everything, body, version=version, flexible=version >= 2) == message


def test_a_field_outside_its_versions_is_left_out_and_reads_as_its_default() -> None:
    message = Everything(ids=[bytes(range(16))], items=[Item(number=1, added=5)], epoch=9)
    assert written(message, 0) == written(Everything(items=[Item(number=1)]), 0)
    read = decode(Everything, memoryview(written(message, 0)), version=0, flexible=False)
    assert (read.ids, read.items[0].added, read.epoch) == ([], -1, -1)


def test_a_tagged_field_at_its_default_does_not_travel() -> None:
    # KIP-482: neither the field nor an empty place for it.
    assert written(Everything(spare=Pair(left=0, right="")), 2)[-1:] == b"\0"
    assert written(Everything(), 2) == written(Everything(epoch=-1, topic_id=bytes(16)), 2)


def test_tags_are_written_in_ascending_order() -> None:
    message = Everything(epoch=1, topic_id=b"i" * 16, numbers=[1], spare=Pair(left=1, right="r"))
    section = written(message, 2)[len(written(Everything(), 2)) - 1 :]
    assert section[0] == 4
    position, tags = 1, []
    while position < len(section):
        tags.append(section[position])
        position += 2 + section[position + 1]
    assert tags == [3, 4, 5, 7]
    assert skip_tags(memoryview(section), 0) == len(section)


def test_no_two_messages_share_a_list() -> None:
    first, second = (
        decode(Everything, memoryview(written(Everything(), 0)), version=0, flexible=False)
        for _ in range(2)
    )
    assert first.ids is not None
    first.ids.append(b"changed")
    first.numbers.append(1)
    assert (second.ids, second.numbers) == ([], [])
    assert Everything().ids == []


def test_a_value_that_does_not_fit_is_a_programming_error() -> None:
    with pytest.raises(AssertionError, match="an id has 16 bytes"):
        written(Everything(topic_id=b"short"), 2)
    with pytest.raises(struct.error):
        written(Everything(port=65536), 2)
    with pytest.raises(TypeError):
        written(Everything(ids=None), 1)


@given(value=st.integers(0, 2**32 - 1), before=st.binary(max_size=3), after=st.binary(max_size=3))
def test_a_varint_is_read_as_written(value: int, before: bytes, after: bytes) -> None:
    encoded = uvarint(value)
    assert len(encoded) == max(1, -(-value.bit_length() // 7))
    frame = memoryview(before + encoded + after)
    assert read_uvarint(frame, len(before)) == (value, len(before + encoded))


@pytest.mark.parametrize("encoded", ["ffffffff10", "8080808080", "ffffffffffff01"])
def test_a_varint_of_more_than_32_bits_is_refused(encoded: str) -> None:
    with pytest.raises(ProtocolError):
        read_uvarint(memoryview(bytes.fromhex(encoded + "00")), 0)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("3", [3], [2, 4]),
        ("4-12", [4, 12], [3, 13]),
        ("7+", [7, 99], [6]),
        ("", [], [-1, 0, 1]),
    ],
)
def test_versions_read_as_kafka_writes_them(
    text: str, inside: list[int], outside: list[int]
) -> None:
    versions = Versions.parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


@define(kw_only=True)
class Longer(Item):
    more: int = int8()


@define(kw_only=True)
class Empty:
    pass


def test_messages_are_shown_and_compared_as_attrs_does_it() -> None:
    item = Item(number=3, name="a")
    assert repr(item) == "Item(number=3, added=-1, name='a')"
    assert repr(Longer(more=1)) == "Longer(number=0, added=-1, name=None, more=1)"
    assert item == Item(number=3, name="a") != Item(number=3)
    assert Item() != Longer()
    assert Empty() == Empty()
    assert repr(Empty()) == "Empty()"
    with pytest.raises(TypeError, match="unhashable"):
        hash(item)
