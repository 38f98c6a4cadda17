"""What a person can put right."""


class UserError(ValueError):
    """Bad input or a bad environment; the message is one clear sentence, shown without a traceback."""


class NumericalError(ArithmeticError):
    """A run that left the numbers a computer can work with; the message holds the hyperparameters."""


class Interrupted(Exception):
    """A run that stopped before its end, on request; the same command continues it."""
