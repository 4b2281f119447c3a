"""Copies the topic `lines` to the topic `shouted`, in capitals; SERVERS says where."""

import os

from bytewax import operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow

servers = os.environ["SERVERS"].split(",")

flow = Dataflow("shout")
lines = kop.input("lines", flow, brokers=servers, topics=["lines"], tail=True)
shouted = op.map(
    "shout", lines.oks, lambda line: KafkaSinkMessage(key=line.key, value=line.value.upper())
)
kop.output("shouted", shouted, brokers=servers, topic="shouted")
