"""Punctuations: what promises about the input allow to forget, and to promise about the output.

The operators know nothing of it. After a step, `Punctuator` looks at their state and at the
promises of the streams: it drops rows that nothing can meet any more, and tells which values are
closed. Without promises it does nothing at all.
"""
