"""The Python examples of the repository's README and of the pages in docs."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
BLOCK = re.compile(r"(?P<before>[^\n]*)\n```python\n(?P<program>.*?)\n```\n", re.DOTALL)


def examples():
    """Returns the programs that run, with their places."""
    found = []
    for page in PAGES:
        for index, block in enumerate(BLOCK.finditer(page.read_text())):
            if not block["before"].startswith("<!-- not run: "):
                place = f"{page.relative_to(ROOT)}-{index}"
                found.append(pytest.param(block["program"], id=place))
    return found


@pytest.mark.parametrize("program", examples())
def test_the_examples_of_the_pages_run(run, tmp_path, program):
    (tmp_path / "app").mkdir()
    run("import quipu_metrics as quipu\n" + program.replace("/run/app", str(tmp_path / "app")))


def test_the_pages_have_examples():
    assert len(examples()) >= 4
