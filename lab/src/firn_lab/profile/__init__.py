"""Shows where the server's processor time goes, per engine. See `perf`, `groups`, `page`."""
