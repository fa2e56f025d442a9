"""One file per foreign array library; none is imported before its user has imported it."""
