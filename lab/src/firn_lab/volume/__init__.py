"""The life of a server with much data in many tables: load, updates, restarts, a kill."""
