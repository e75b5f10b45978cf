"""Several replicas: processes, collectives, loaders, faults."""
