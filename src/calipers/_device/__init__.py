"""Questions about arrays in the memory of a device: what is launched, and what comes back."""
