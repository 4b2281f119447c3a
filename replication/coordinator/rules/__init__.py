"""Which partition of a coordinator's topic a key belongs to, and the records written there."""
