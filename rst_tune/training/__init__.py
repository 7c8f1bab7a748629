"""One training run: data, models, recipe, loop. No Ray, no MLflow."""
