"""What a search means: records, fronts, noise, the published tables. No torch, no Ray."""
