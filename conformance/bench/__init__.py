"""The papers' experiments, run again: `tickproof bench seeds`."""
