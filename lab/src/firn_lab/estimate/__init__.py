"""Predicts the disk space of FIRN for tables that InnoDB holds now.

It samples rows, encodes them into FIRN's formats (docs/formats) and compresses the blocks as FIRN
does. `run` drives the estimate, and `predict` extrapolates from a sample to an index.
"""
