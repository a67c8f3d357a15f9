"""Refuses interpreters that the native part cannot run in, before it is loaded."""

import importlib


def check() -> None:
    """Raises ImportError in a subinterpreter.

    The native part belongs to the process' main interpreter: in another one it is refused when it is
    loaded, at the earliest, and some versions of Python end the process then.
    """
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = importlib.import_module(name)
        except ImportError:
            continue
        if _number(interpreters.get_current()) != _number(interpreters.get_main()):
            raise ImportError(
                "quipu does not run in a subinterpreter; run the application in the main one: under "
                "mod_wsgi, set 'WSGIApplicationGroup %{GLOBAL}', under uWSGI, 'single-interpreter = "
                "true'"
            )
        return


def _number(interpreter) -> int:
    # From Python 3.13 on, a pair with the number in front.
    return int(interpreter[0] if isinstance(interpreter, tuple) else interpreter)
