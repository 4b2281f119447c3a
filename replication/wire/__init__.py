"""Kafka's protocol, sans-IO: bytes in, messages out, and back.

    frames      a length, a header, a message; what a server and a client call
    apis        the table of APIs and versions
    fetch ...   one module for the two messages of each API
    schema      the declaration of messages
    codec       a declaration compiled to functions, on first use
                (encoder_source, decoder_source and source write their text; primitives: varints)

docs/protocol.md lists the versions that are served, and deviations that are accepted.
"""
