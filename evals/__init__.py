"""Benchmarks: prompts out, text in, verdicts out. Knows neither torch nor the engine that wrote the text."""
