"""Runs: what one training leaves in its folder, and its network, data and predictions from there."""
