"""How the device computes: the precision of float32 matrix products and convolutions."""

from . import _XLAC


def set_mat_mul_precision(precision: str) -> None:
    """Chooses with how much precision float32 matrix products and convolutions are computed.

    Args:
        precision: "highest" (all of float32, where every device begins), "high" (such as three
            bfloat16 passes or TF32) or "default" (the device's fastest, such as one bfloat16 pass).

    Graphs that are compiled from now on use it; a graph that was compiled with another precision
    is compiled again. It counts more than `torch.set_float32_matmul_precision`, which the device
    follows otherwise ("medium" is "default"), and leaves the CPU alone. CPU devices compute in
    float32 whatever is set.

    Raises:
        ValueError: another name.
    """
    members = _XLAC.Precision.__members__
    if precision not in members:
        raise ValueError(f"precision must be one of {', '.join(members)}, not {precision!r}")
    _XLAC._xla_set_mat_mul_precision(members[precision])


def get_mat_mul_precision() -> str:
    """ "highest", "high" or "default": what products are computed with now."""
    return _XLAC._xla_mat_mul_precision().name
