"""The paper: schedules, the coin, the ascent rules, the optimizer, the theory. Needs torch and nothing else."""
