"""Errors that a user can fix, and the exception that stops a run."""


class UserError(ValueError):
    """Invalid input or environment. The message is one clear sentence, shown without a traceback."""


class NumericalError(ArithmeticError):
    """A run whose numbers are no longer finite. The message contains the hyperparameters."""


class Interrupted(Exception):
    """A run that stopped early on request. The same command resumes it."""
