"""Numerical derivatives: from a question about f to calls of f, and back."""
