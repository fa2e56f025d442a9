"""Scalar rules and the compiled loops around them; nothing here knows of threads."""
