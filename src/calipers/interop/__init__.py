"""What calipers knows of foreign libraries; none is imported before its user has imported it."""
