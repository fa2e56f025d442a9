"""The text of reports."""
