"""Training of the embedded tiny model: tokenizer, data, optimizer, loop. The application is `experiments.train_tiny`."""
