"""What defines a run: recipes, their defaults, and how they are put together."""
