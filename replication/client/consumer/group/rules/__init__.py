"""The rules of a member of the new protocol (KIP-848): values, without tasks and time."""
