"""Kafka's protocol, sans-IO: bytes in, messages out, and back.

    frames      a length, a header, a message; what a server and a client call
    apis        which APIs and versions there are: the table
    fetch ...   one module for the two messages of each API
    schema      how a message is declared
    codec       a declaration compiled to functions, on first use
                (encoder_source, decoder_source and source write their text; primitives: varints)

docs/protocol.md lists what is served, and what is forgiven in what comes.
"""
