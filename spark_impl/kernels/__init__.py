"""Columnar algorithms over plain arrays; they know nothing of queries, windows or state."""
