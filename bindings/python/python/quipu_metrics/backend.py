"""Chooses the module that counts: the native part, or ``_pure`` where there is none.

Wheels for Linux contain the native part. Any other platform gets a wheel without it, so that an
application also runs on the computer of its developer. The environment variable
``QUIPU_PURE_PYTHON=1`` chooses ``_pure`` on Linux as well, for tests.
"""

import importlib.util
import logging
import os
import sys
from typing import TYPE_CHECKING

from . import interpreters

__all__ = ["IS_NATIVE", "RecordingError", "__version__", "_quipu"]

_is_pure_wanted = os.environ.get("QUIPU_PURE_PYTHON", "") not in ("", "0")
_has_native_part = importlib.util.find_spec("quipu_metrics._quipu") is not None

IS_NATIVE = _has_native_part and not _is_pure_wanted
"""Whether the native part counts, and processes can share their counts."""

if TYPE_CHECKING:
    from . import _quipu
elif IS_NATIVE:
    interpreters.check()
    from . import _quipu
else:
    from . import _pure as _quipu

if not (IS_NATIVE or _is_pure_wanted):
    # A log, because a program can turn warnings into exceptions, and the import must not fail.
    logging.getLogger("quipu_metrics").warning(
        "quipu counts without its native part, which this package lacks for %s: each process shows "
        "only its own counts, which end with the process, and nothing is recorded",
        sys.platform,
    )

RecordingError = _quipu.RecordingError
__version__ = _quipu.__version__
