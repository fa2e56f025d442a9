"""Passes over arrays, and evaluations of functions, on threads, processes and machines."""
