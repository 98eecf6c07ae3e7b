"""The error of a command line that was not understood."""


class UsageError(Exception):
    """The command line was not understood; the message says what to type."""
