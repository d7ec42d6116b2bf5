"""Headers that compile faster than torch's, and the fallback to the full ones."""
