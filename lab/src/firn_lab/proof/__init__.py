"""Proofs of the lab's resolution, on servers whose true ratio is known."""
