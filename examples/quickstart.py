"""The example that `make demo` runs."""
