"""Errors of the service runtime. `user_error` marks a mistake of the operator: one clear line, no stack
trace."""

from __future__ import annotations


class WaltzRuntimeError(Exception):
    """Base of all errors raised by this package."""

    retriable: bool = False
    user_error: bool = False


class HttpBindError(WaltzRuntimeError):
    """The HTTP port could not be bound (in use, or the address is not one of this machine)."""

    user_error = True


class NoFreePortError(WaltzRuntimeError):
    """This machine has no port left that could be reserved."""

    user_error = True


class LogLevelError(WaltzRuntimeError, ValueError):
    """There is no log level of this name."""

    user_error = True


class MetricNameError(WaltzRuntimeError):
    """Two metrics of different kinds were asked for under one name."""
