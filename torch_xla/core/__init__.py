"""The device's own modules: `xla_model` and the names of environment variables."""
