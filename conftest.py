"""Settings of the tests that hold for every folder."""

from properties import profiles

profiles.load()
