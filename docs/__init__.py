"""The documentation, and the tests that keep it true."""
