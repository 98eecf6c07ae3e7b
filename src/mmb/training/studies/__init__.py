"""Many runs: compare methods, tune settings, reproduce tables."""
