"""The version; its minor is that of the torch it is built for."""

__version__ = "2.13.0"
