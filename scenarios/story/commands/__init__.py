"""The commands of stories; table has all of them by name."""
