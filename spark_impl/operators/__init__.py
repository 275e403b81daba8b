"""The operators: one step function each, from deltas to a delta."""
