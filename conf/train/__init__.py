"""Configuration of the training of the tiny model."""
