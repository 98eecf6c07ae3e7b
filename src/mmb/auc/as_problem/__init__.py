"""Each objective stated as a `Problem`, so that the general solver can check it."""
