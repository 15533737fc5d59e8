"""Measures which differences the lab can detect, on servers whose true ratio is known."""
