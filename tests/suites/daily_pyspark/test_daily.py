import json

import pytest
from confluent_kafka import Producer
from daily import by_day, read

from pipeline.session import get_session

# Long ago: the log keeps them, for pytest.ini says so.
MORNING, NEXT_DAY = 1_700_000_000_000, 1_700_086_400_000


@pytest.fixture(scope="module")
def spark():
    session = get_session(master="local[2]", quick=True)
    yield session
    session.stop()


@pytest.mark.kafka(partitions=3)
def test_sales_are_summed_by_day(spark, kafka_cluster, kafka_topic, tmp_path):
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    sold = [("north", 5, MORNING), ("north", 7, MORNING), ("south", 1, MORNING)]
    for shop, cents, when in [*sold, ("north", 9, NEXT_DAY)]:
        sale = json.dumps({"shop": shop, "cents": cents})
        producer.produce(kafka_topic, sale, key=shop, timestamp=when)
    assert producer.flush(60) == 0

    by_day(read(spark, kafka_cluster.bootstrap_servers, kafka_topic)).write.parquet(
        str(tmp_path / "sales")
    )
    rows = spark.read.parquet(str(tmp_path / "sales")).orderBy("day", "shop").collect()
    assert [(str(row.day), row.shop, row.cents) for row in rows] == [
        ("2023-11-14", "north", 12),
        ("2023-11-14", "south", 1),
        ("2023-11-15", "north", 9),
    ]
