"""Thousands of sessions that update one row: the client, the rounds, the results."""
