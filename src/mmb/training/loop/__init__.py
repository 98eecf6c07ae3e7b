"""Training itself: set up, feed, step, evaluate, and what a run leaves at its end."""
