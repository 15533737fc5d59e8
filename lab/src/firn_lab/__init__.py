"""The lab: measures storage engines of SQL servers as the field does, and draws the result."""

__version__ = "0.1.0"
