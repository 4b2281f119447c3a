"""Batches as Arrow columns, for notebooks and for Spark; the only room of storage with numpy."""
