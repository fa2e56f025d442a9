"""Classification of a difference between two implementations: diagnose."""
