"""Where the server's processor time goes, engine beside engine. See `perf`, `groups`, `page`."""
