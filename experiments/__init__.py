"""The application: a Hydra command line around the decoding library and the benchmarks, its records and reports."""
