"""Orders with schemas in a registry: `write` turns each line into an order, `read` prints the lines.

The orders from number 300 on have a second version of the schema, with one field more.
Arguments: write or read, the servers, the registry's URL, and avro, protobuf or json.
"""

import json
import sys

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

do, servers, url, form = sys.argv[1:]
registry = SchemaRegistryClient({"url": url})
context = SerializationContext("orders", MessageField.VALUE)


def avro(fields):
    text = {"name": "text", "type": "string"}
    size = {"name": "size", "type": ["null", "int"], "default": None}
    return json.dumps({"type": "record", "name": "Order", "fields": [text, size][:fields]})


def json_schema(fields):
    names = ["text", "size"][:fields]
    properties = {"text": {"type": "string"}, "size": {"type": "integer"}}
    return json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Order",
            "type": "object",
            "properties": {name: properties[name] for name in names},
        }
    )


def protobuf(fields):
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    order = file.message_type.add(name="Order")
    kind = descriptor_pb2.FieldDescriptorProto
    types = [("text", kind.TYPE_STRING), ("size", kind.TYPE_INT32)]
    for number, (name, field_type) in enumerate(types[:fields], 1):
        order.field.add(name=name, number=number, type=field_type, label=kind.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))


def order_of(line, fields):
    values = {"text": line, "size": len(line)}
    values = {name: values[name] for name in ["text", "size"][:fields]}
    return protobuf_classes[fields](**values) if form == "protobuf" else values


protobuf_classes = {fields: protobuf(fields) for fields in (1, 2)}
serializers = {
    "avro": lambda fields: AvroSerializer(registry, avro(fields)),
    "json": lambda fields: JSONSerializer(json_schema(fields), registry),
    "protobuf": lambda fields: ProtobufSerializer(
        protobuf_classes[fields], registry, {"use.deprecated.format": False}
    ),
}
deserializers = {
    "avro": lambda: AvroDeserializer(registry),
    "json": lambda: JSONDeserializer(json_schema(2), schema_registry_client=registry),
    "protobuf": lambda: ProtobufDeserializer(
        protobuf_classes[2], {"use.deprecated.format": False}, registry
    ),
}


def write():
    versions = {fields: serializers[form](fields) for fields in (1, 2)}
    producer = Producer({"bootstrap.servers": servers})
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "orders",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["lines"])
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        line = message.value().decode()
        fields = 1 if int(line.split()[1]) < 300 else 2
        producer.produce("orders", versions[fields](order_of(line, fields), context))
        producer.flush()
        consumer.commit(message, asynchronous=False)


def read():
    decode = deserializers[form]()
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True}
    )
    partitions = consumer.list_topics("orders").topics["orders"].partitions
    consumer.assign([TopicPartition("orders", each, 0) for each in partitions])
    ends = set()
    while ends != set(partitions):
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            order = decode(message.value(), context)
            print(order.text if form == "protobuf" else order["text"])
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ends.add(message.partition())


{"write": write, "read": read}[do]()
