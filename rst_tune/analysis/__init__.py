"""Fronts, surrogate, replicates, comparisons and the published tables. No torch, no Ray."""
