"""Decoding for diffusion language models: model, decoding strategy, iteration manager and cache policy compose freely."""
