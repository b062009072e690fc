"""Recipes: which runs answer which question."""
