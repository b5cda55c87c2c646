"""DPGM: a mixture of generative models on privately found clusters."""
