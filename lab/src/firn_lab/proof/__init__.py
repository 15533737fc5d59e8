"""What the lab can tell apart, measured on servers of which the truth is known."""
