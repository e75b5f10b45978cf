"""Several replicas: starting them, feeding them, and torch.distributed's backend `xla`."""
