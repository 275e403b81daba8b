"""Benchmarks: `python -m benchmarks [NAME ...]`. Numbers are ratios within one run."""
