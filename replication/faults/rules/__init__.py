"""Fault rules as values: which requests are hit, and what happens to them."""
