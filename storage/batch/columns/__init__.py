"""Batches as Arrow columns, for notebooks and for Spark; compaction uses their vectors too."""
