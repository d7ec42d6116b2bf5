"""Convert problems and solutions of other projects."""
