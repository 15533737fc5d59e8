"""Predicts what FIRN would take on disk for tables that InnoDB holds now: rows are sampled, encoded
and compressed as FIRN does it. See docs/formats of FIRN; `predict` puts the parts together."""
