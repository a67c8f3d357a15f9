"""Refuses subinterpreters before the native part is loaded, because it cannot run there."""

import importlib
from typing import Any


def check() -> None:
    """Raises ImportError in a subinterpreter.

    The native part can run only in the main interpreter of a process. In a subinterpreter, loading
    this part fails, and some versions of Python then end the process.
    """
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = importlib.import_module(name)
        except ImportError:
            continue
        if _number(interpreters.get_current()) != _number(interpreters.get_main()):
            raise ImportError(
                "quipu does not run in a subinterpreter; run the application in the main one: under "
                "mod_wsgi, set 'WSGIApplicationGroup %{GLOBAL}'; under uWSGI, 'single-interpreter = "
                "true'"
            )
        return


def _number(interpreter: Any) -> int:
    # From Python 3.13 on, a pair whose first part is the number.
    return int(interpreter[0] if isinstance(interpreter, tuple) else interpreter)
