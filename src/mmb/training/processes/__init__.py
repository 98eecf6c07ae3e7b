"""Many processes: join a group, share state, and start workers."""
