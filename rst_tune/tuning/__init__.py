"""Many runs: spaces, experiments, the search. The only door to Ray and Optuna."""
