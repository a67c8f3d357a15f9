"""The installed wheel: the size of its native part."""

import pathlib

from quipu import _quipu


def test_the_native_part_has_no_debug_information():
    # The table of the names of sections.
    assert b"\0.debug_line\0" not in pathlib.Path(_quipu.__file__).read_bytes()
