"""A simulated engine: vLLM's interface and a GPU's pace, without a model."""
