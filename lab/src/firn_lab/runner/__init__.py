"""Runs a plan: interleaved rounds, events, failures. See `runner.run` and `runner.events`."""
