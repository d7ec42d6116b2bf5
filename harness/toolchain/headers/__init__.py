"""Headers that compile faster than torch's: shared, lean, with a fallback."""
