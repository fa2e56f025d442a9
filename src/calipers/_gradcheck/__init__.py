"""The parts of gradcheck, one rule a file."""
