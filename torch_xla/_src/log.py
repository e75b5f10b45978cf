"""The one logger, ``torch_xla``, and the core's way to it."""

import logging

logger = logging.getLogger("torch_xla")

# WARNING unless the user has chosen; with no handler of the user's, Python's last resort prints.
if logger.level == logging.NOTSET:
    logger.setLevel(logging.WARNING)

_LEVELS = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
}


def sink(level: str, message: str) -> None:
    """Called by the core, from any thread."""
    logger.log(_LEVELS.get(level.upper(), logging.INFO), message)
