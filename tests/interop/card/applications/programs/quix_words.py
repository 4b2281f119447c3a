"""Counts the words of the topic `lines` into the topic `counts`. Arguments: servers, guarantee, state."""

import sys

from quixstreams import Application

servers, guarantee, state_dir = sys.argv[1:]
app = Application(
    broker_address=servers,
    consumer_group="word-count",
    processing_guarantee=guarantee,
    auto_offset_reset="earliest",
    commit_interval=0.5,
    state_dir=state_dir,
)
lines = app.topic("lines", value_deserializer="string")
counts = app.topic("counts", key_serializer="string", value_serializer="string")


def count(word, state):
    seen = state.get("seen", 0) + 1
    state.set("seen", seen)
    return str(seen)


words = app.dataframe(lines).apply(str.split, expand=True)
words = words.group_by(
    lambda word: word,
    name="word",
    key_serializer="string",
    key_deserializer="string",
    value_serializer="string",
    value_deserializer="string",
)
words.apply(count, stateful=True).to_topic(counts)

app.run()
