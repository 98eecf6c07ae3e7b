"""Raw files: find them, download them, verify them, read them, cache what they hold."""
