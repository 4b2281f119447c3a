"""What a proxy has to know of the messages that pass: addresses, and fetch sessions."""
