"""Exit statuses of all commands."""

# The last is what a shell reports after an interrupt: 128 and the number of the signal.
SAME, DIFFERENT, TROUBLE, INTERRUPTED = 0, 1, 2, 130
