"""A shop's service on FastStream: takes orders, answers with invoices."""

from faststream.kafka import KafkaBroker
from pydantic import BaseModel, PositiveInt

PRICE = 7


class Order(BaseModel):
    number: int
    pieces: PositiveInt


class Invoice(BaseModel):
    number: int
    total: int


def shop(servers: str, orders: str, invoices: str) -> KafkaBroker:
    broker = KafkaBroker(servers)

    @broker.publisher(invoices)
    @broker.subscriber(orders, group_id="shop", auto_offset_reset="earliest")
    async def take(order: Order) -> Invoice:
        return Invoice(number=order.number, total=order.pieces * PRICE)

    return broker
