"""Says what is wrong when the compiled module is missing: imported before everything else."""

try:
    from .. import _cpu as _cpu
except ImportError as e:
    raise ImportError(
        f"jaxdali's compiled module does not load ({e}). If {__file__} is in the source folder and not the installed package: "
        "install with `pip install -e .`, after which both are one, or run Python from another folder"
    ) from e
