"""Tests of the conformance suite itself."""
