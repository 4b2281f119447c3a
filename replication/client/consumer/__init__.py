"""A consumer for trio, after KafkaConsumer.

without a network:
    position  subscription      what is read, and where in it (KIP-320)
    offset_reset                auto.offset.reset
    fetch_requests              which partitions are fetched from whom next (KIP-227, KIP-392)
    completed_fetch  records    an answer, read as far as its records were taken
    fetch_buffer                what was fetched and not handed over
    fetch_collector             what is handed over, and what errors mean
    metrics  errors  config
"""
