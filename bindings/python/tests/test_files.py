"""Files of segments: directories, unreadable files, full disks."""

import contextlib
import os
import subprocess

import pytest

pytestmark = pytest.mark.native

COUNT = """
    import warnings
    warnings.simplefilter("always")
    import quipu_metrics as quipu
    c = quipu.Counter("c", "C.", ["a"])
    for i in range({count}):
        c.labels(str(i)).inc()
    print(quipu.REGISTRY.get_sample_value("c_total", dict(a="0")))
"""


def test_the_file_outlives_its_processes(run, tmp_path):
    for expected in ("1.0", "2.0"):
        done = run(COUNT.format(count=3), QUIPU_DIR=str(tmp_path / "a" / "b"))
        assert done.stdout.strip() == expected and "Warning" not in done.stderr
    assert os.listdir(tmp_path / "a" / "b") == ["metrics.quipu"]


def test_configure(run, tmp_path):
    program = """
        import quipu_metrics as quipu
        quipu.configure("here", limit=64 << 20)
        quipu.Counter("c", "C.").inc()
        try:
            quipu.configure("there")
        except RuntimeError as error:
            print(error)
    """
    assert "before any is made" in run(program).stdout
    assert (tmp_path / "here" / "metrics.quipu").stat().st_size < 1 << 20


def test_a_new_file_has_the_mode_and_the_group_that_were_asked_for(run, tmp_path):
    group = 1 if os.getuid() == 0 else os.getegid()
    program = f"""
        import grp, quipu_metrics as quipu
        quipu.install("installed", mode=0o660, group={group})
        quipu.CollectorRegistry(path="own", mode=0o640, group=grp.getgrgid({group}).gr_name)
        quipu.configure("configured")
    """
    run(program)
    for directory, expected in (
        ("installed", (0o660, group)),
        ("own", (0o640, group)),
        ("configured", (0o600, os.getegid())),
    ):
        stat = (tmp_path / directory / "metrics.quipu").stat()
        assert (stat.st_mode & 0o7777, stat.st_gid) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("mode=640", "mode 640 is not permission bits"),
        ("mode='0640'", "mode '0640' is not permission bits"),
        ("mode=0o1600", "mode 896 is not permission bits"),
        ("mode=0o440", "mode 0o440 keeps the owner from reading or writing"),
        ("group='no such group'", "group 'no such group' is unknown to the system"),
        ("group=-1", "group -1 is not a group"),
        ("group=2**32", "group 4294967296 is not a group"),
        ("group=b'adm'", "group b'adm' is not a group"),
    ],
)
def test_modes_and_groups_that_cannot_be_meant_are_refused(run, tmp_path, options, message):
    done = run(f"import quipu_metrics as quipu; quipu.install('refused', {options})", check=False)
    assert f"ValueError: {message}" in done.stderr
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("damage", ["foreign", "cut", "version", "empty"])
def test_a_file_that_cannot_be_read_is_set_aside(run, tmp_path, damage):
    directory = tmp_path / "numbers"
    run(COUNT.format(count=3), QUIPU_DIR=str(directory))
    file = directory / "metrics.quipu"
    content = bytearray(file.read_bytes())
    if damage == "foreign":
        content = b"something else" * 1000
    elif damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "version":
        content[8:12] = (99).to_bytes(4, "little")
    else:
        content = b""
    file.write_bytes(content)
    done = run(COUNT.format(count=3), QUIPU_DIR=str(directory))
    assert done.stdout.strip() == "1.0"
    assert done.stderr.count("RuntimeWarning") == 1, done.stderr
    assert file.with_name("metrics.quipu.aside-1").read_bytes() == bytes(content)


def test_other_labels_than_the_file_has(run, tmp_path):
    directory = str(tmp_path / "numbers")
    run(COUNT.format(count=3), QUIPU_DIR=directory)
    program = """
        import quipu_metrics as quipu
        c = quipu.Counter("c", "C.", ["b"])
        c.labels("x").inc()
        print(quipu.generate_latest().decode())
    """
    done = run(program, QUIPU_DIR=directory)
    assert 'c_total{b="x"} 1' in done.stdout and "c_total{a" not in done.stdout
    assert "RuntimeWarning" in done.stderr


def test_a_directory_that_cannot_be_written(run, tmp_path):
    (tmp_path / "file").write_text("")
    for directory in ("file/numbers", "/proc/numbers", "/sys/numbers"):
        done = run(COUNT.format(count=3), QUIPU_DIR=directory)
        assert done.stdout.strip() == "1.0"
        assert done.stderr.count("RuntimeWarning") == 1, done.stderr


def test_a_full_segment_drops_what_does_not_fit(run):
    program = """
        import quipu_metrics as quipu
        registry = quipu.CollectorRegistry(limit=1 << 20)
        c = quipu.Counter("c", "C.", ["a"], registry=registry)
        for i in range(60000):
            c.labels("x" * 50 + str(i)).inc()
        total = sum(s.value for s in c.collect()[0].samples if s.name == "c_total")
        print(total)
        for n in range(2000):
            quipu.Counter("more_%d" % n, "M.", registry=registry).inc()
        assert b"more_1999_total 1" in quipu.generate_latest(registry)
    """
    done = run(program)
    assert done.stdout.strip() == "60000.0", done.stdout


def test_a_full_disk(run, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("NOT RUN: mounting a tmpfs needs root")
    try:
        done = run(COUNT.format(count=20000), QUIPU_DIR=str(disk))
        assert done.stdout.strip() == "1.0"
        os.unlink(disk / "metrics.quipu")
        with contextlib.suppress(OSError), open(disk / "fill", "wb", buffering=0) as fill:
            while True:
                fill.write(b"x" * 4096)
        done = run(COUNT.format(count=10), QUIPU_DIR=str(disk))
        assert done.stdout.strip() == "1.0" and "RuntimeWarning" in done.stderr
    finally:
        subprocess.run(["umount", str(disk)], check=True)
