"""Counts the words of the topic `lines` into the topic `counts`; SERVERS and GUARANTEE say how."""

import os

import faust

servers = os.environ["SERVERS"].split(",")
app = faust.App(
    "word-count",
    broker=[f"kafka://{each}" for each in servers],
    store="memory://",
    topic_partitions=2,
    topic_replication_factor=3,
    processing_guarantee=os.environ["GUARANTEE"],
    broker_commit_interval=0.5,
    topic_allow_declare=True,
)
lines = app.topic("lines", key_type=bytes, value_type=str, value_serializer="raw")
words = app.topic(
    "words", key_type=str, value_type=str, key_serializer="raw", value_serializer="raw"
)
counts = app.topic(
    "counts", key_type=str, value_type=str, key_serializer="raw", value_serializer="raw"
)
table = app.Table("table", default=int, partitions=2)


@app.agent(lines)
async def split(stream):
    async for line in stream:
        for word in line.split():
            await (await words.send(key=word, value=word))  # until it is acknowledged


@app.agent(words)
async def count(stream):
    async for word in stream:
        table[word] += 1
        await (await counts.send(key=word, value=str(table[word])))


if __name__ == "__main__":
    app.main()
