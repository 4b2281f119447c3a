"""A log at rest, without a broker: check it, repair it, dump it, append to it."""
