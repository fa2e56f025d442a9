"""Why two implementations differ: what is asked of them, and what the answers mean."""
