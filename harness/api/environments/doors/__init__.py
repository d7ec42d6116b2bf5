"""Doors: the environment in the forms that other packages take.

Each module imports its package; the package is an extra of this one. Nothing else imports a door.
"""


def missing(extra: str) -> ModuleNotFoundError:
    """Return the error for a package that is not installed.

    Args:
        extra: The extra that installs it.
    """
    return ModuleNotFoundError(
        f"this door needs a package that is not installed: pip install 'kernel-harness[{extra}]'"
    )
