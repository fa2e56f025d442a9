"""Measurements of single properties of a function, growth of errors, emulated formats."""
