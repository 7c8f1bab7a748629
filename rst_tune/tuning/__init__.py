"""The search: experiments, spaces, samplers, stopping, budget, confirmation, and the backends that run trials."""
