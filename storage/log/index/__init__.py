"""The indexes of a segment: where in a file an offset, a time or an aborted transaction lies."""
