# SPDX-License-Identifier: Apache-2.0
"""Where output goes, and what happens when it cannot: nothing half-written is left, and the exit code says so."""

import os
import pty
import resource
import shutil
import signal
import stat
import subprocess
import time

import pytest
from rule_texts import DEFAULT

LONG = ["table", "--rotary", DEFAULT, "--positions", "0:4096"]


def limited_to(size):
    """What a disk with `size` bytes left does, as far as a process can ask for it."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("form", ["json", "csv", "npy"])
def test_a_full_disk_leaves_nothing(gnomon, tmp_path, form):
    result = gnomon(*LONG, "--format", form, "--out", "table", preexec_fn=limited_to(100_000))
    assert result.code == 2
    assert result.err.startswith("gnomon: cannot write ")
    assert "table: File too large" in result.err
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_keeps_what_was_there(gnomon, tmp_path):
    (tmp_path / "table").write_text("before")
    result = gnomon(*LONG, "--out", "table", preexec_fn=limited_to(100_000))
    assert result.code == 2
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"table": "before"}


def test_a_disk_that_is_really_full(executable, tmp_path):
    script = 'mount -t tmpfs -o size=64k none "$1" && cd "$1" && "$0" table --rotary "$2" --positions 0:4096 --out t; echo "exit $?"; ls -A'
    command = ["unshare", "-rm", "sh", "-c", script, executable, tmp_path, DEFAULT]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if "exit" not in done.stdout or "mount:" in done.stderr:
        pytest.skip("no right to mount a small disk here")
    assert done.stdout == "exit 2\n"
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["version"], ["--help"], ["freqs", "--rotary", DEFAULT], LONG])
def test_standard_output_that_cannot_be_written(executable, arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run([executable, *arguments], stdout=full, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    assert done.returncode == 2
    assert done.stderr == "gnomon: cannot write standard output: No space left on device\n"


def test_a_device_as_the_file(gnomon):
    result = gnomon(*LONG, "--out", "/dev/full")
    assert result.code == 2
    assert "No space left" in result.err


def test_a_closed_pipe(executable):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([executable, *LONG], stdout=write, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    os.close(write)
    assert done.returncode == 2
    assert done.stderr == "gnomon: cannot write standard output: Broken pipe\n"


def test_files_that_cannot_be_made(refused, gnomon, tmp_path):
    refused(*LONG, "--out", "no/such/folder/table", says=["cannot create", "no/such/folder/table", "No such file or directory"])
    refused(*LONG, "--out", tmp_path, says="is a folder")
    refused(*LONG, "--out", "", says="--out")
    assert list(tmp_path.iterdir()) == []


def test_bad_input_creates_no_file(refused, tmp_path):
    refused("table", "--rotary", DEFAULT, "--positions", "nan", "--out", "table", says="nan")
    assert list(tmp_path.iterdir()) == []


def test_the_file_replaces_the_old_one_with_its_permissions(gnomon, tmp_path):
    target = tmp_path / "table"
    target.write_text("before")
    target.chmod(0o640)
    (tmp_path / "link").symlink_to(target)
    gnomon(*LONG, "--out", "link", code=0)
    assert (tmp_path / "link").is_symlink()
    assert target.read_text().startswith('{"schema": 1')
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    gnomon(*LONG, "--out", "fresh", code=0, preexec_fn=lambda: os.umask(0o027))
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) == 0o640


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing(executable, tmp_path, number):
    arguments = ["table", "--rotary", DEFAULT, "--positions", "0:16000000", "--format", "csv", "--out", "table"]
    # A shell lets what it starts in the background ignore SIGINT, and a command started there inherits that.
    process = subprocess.Popen([executable, *arguments], cwd=tmp_path, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    try:
        while not list(tmp_path.iterdir()):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(timeout=60) == -number
    finally:
        process.kill()  # it would go on to fill the disk
        process.wait()
    assert list(tmp_path.iterdir()) == []


def on_terminal(executable, *arguments, **variables):
    """Exit code and output when standard output is a terminal."""
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"} | variables
    process = subprocess.Popen([executable, *arguments], stdout=theirs, stderr=subprocess.PIPE, env=environment)
    os.close(theirs)
    output = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        output += part
    os.close(ours)
    return process.wait(), output.decode(), process.stderr.read().decode()


def test_colours_only_on_a_terminal_that_wants_them(executable, gnomon):
    assert "\033[" in on_terminal(executable, "list")[1]
    assert "\033[" not in on_terminal(executable, "list", NO_COLOR="1")[1]
    assert "\033[" in on_terminal(executable, "list", NO_COLOR="")[1]
    assert "\033[" not in on_terminal(executable, "list", TERM="dumb")[1]
    assert "\033[" not in gnomon("list", code=0).out
    assert "\033[" not in on_terminal(executable, "list", "--json")[1]


def test_npy_is_not_sent_to_a_terminal(executable):
    code, out, err = on_terminal(executable, *LONG, "--format", "npy")
    assert (code, out) == (2, "")
    assert err.startswith("gnomon: npy is binary")


def test_npy_through_a_pipe(executable):
    import io

    import numpy

    done = subprocess.run([executable, *LONG, "--format", "npy"], capture_output=True, check=True)
    assert numpy.load(io.BytesIO(done.stdout)).shape == (2, 4096, 64)


def test_without_a_standard_error_the_exit_code_still_speaks(executable):
    sh = shutil.which("sh")
    assert subprocess.run([sh, "-c", '"$0" freqs /nonexistent 2>&-', executable], check=False).returncode == 2
