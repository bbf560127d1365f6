# SPDX-License-Identifier: Apache-2.0
"""The wheel on a machine that has none of the Debian packages it was built with."""

import cmath
import json
import pathlib
import re
import subprocess
import sys
import zipfile

import numpy
import pytest
from running import run

# What every machine with Python has. All else that a wheel needs is in it.
SYSTEM = re.compile(r"lib(c|m|dl|pthread|stdc\+\+|gcc_s)\.so\.\d+|ld-linux[\w-]*\.so\.\d+|libpython3[\d.]*\.so[\d.]*")

PROGRAM = """
import numpy, gnomon
spec = gnomon.RotarySpec(gnomon.rotary.Linear(factor=4), theta=10000.0, head_dim=4)
x = numpy.array([[[[1, 2, 3, 4]]]], "f4")
gnomon.rotate(x, gnomon.frequencies(spec), [1_000_000])
print(gnomon.__file__, *x.ravel())
"""

# /dev/null in the place of the libraries: opening them is an error, as if they were not there.
HIDING = 'hidden=$1; shift; for library in $hidden; do mount --bind /dev/null "$library"; done; exec "$@"'


@pytest.fixture(scope="module")
def venv(wheel, tmp_path_factory):
    """Python, NumPy and the wheel; nothing else."""
    folder = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin/python"
    (packages,) = folder.glob("lib/python*/site-packages")
    for part in pathlib.Path(numpy.__path__[0]).parent.glob("numpy*"):
        (packages / part.name).symlink_to(part)
    options = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel)
    return folder


@pytest.fixture(scope="module")
def without_packages():
    """Prefix of a command that runs without the system's libraries of ours; empty where no mount namespace may be made, which leaves
    test_needs_no_library_of_the_system to find what is missing from the wheel."""
    libraries = {str(path.resolve()) for name in ("hwy", "fmt") for path in pathlib.Path("/usr/lib").glob(f"**/lib{name}*.so*")}
    assert libraries, "the wheel was built with libhwy-dev, so it must be somewhere"
    command = ["unshare", "--map-root-user", "--mount", "sh", "-ec", HIDING, "-", " ".join(sorted(libraries))]
    try:
        permitted = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        permitted = False
    return command if permitted else []


def test_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.split("/")[0] for name in names}
    assert {re.sub(r"-\d+\.\d+\.\d+", "-X", folder) for folder in folders} == {"gnomon", "gnomon-X.data", "gnomon-X.dist-info"}
    assert not [name for name in names if re.search(r"\.(a|h|hpp|cmake|pc|cpp)$|(^|/)(include|cmake|pkgconfig)/", name)]
    assert [name for name in names if ".data/" in name] == [name for name in names if name.endswith(".data/scripts/gnomon")]
    for part in (r"_core\..*\.so", r"libhwy\.so\.\d+.*", r"_core/__init__\.pyi", r"py\.typed", r"torch\.py"):
        assert [name for name in names if re.fullmatch(f"gnomon/{part}", name)], part


def test_needs_no_library_of_the_system(venv):
    (packages,) = venv.glob("lib/python*/site-packages/gnomon")
    programs = [venv / "bin/gnomon", *packages.glob("*.so*")]
    assert len(programs) >= 3
    for program in programs:
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "--dynamic", program))
        assert needed, program
        foreign = [name for name in needed if not SYSTEM.fullmatch(name)]
        assert [name for name in foreign if not (packages / name).is_file()] == [], program
        loaded = dict(re.findall(r"(\S+) => (\S+)", run("ldd", program)))
        for name in foreign:
            assert pathlib.Path(loaded[name]).resolve().parent == packages.resolve(), f"{program} would load {loaded[name]}"


def test_hiding_hides(without_packages, prefix):
    """The installed command needs the system's library, so it must fail where that is hidden, or hiding proves nothing."""
    if without_packages:
        result = subprocess.run([*without_packages, prefix / "bin/gnomon", "version"], capture_output=True, text=True, check=False)
        assert result.returncode != 0
        assert "libhwy" in result.stderr


def test_rotate_runs(venv, without_packages):
    file, *values = run(*without_packages, venv / "bin/python", "-c", PROGRAM, cwd=venv).split()
    assert pathlib.Path(file).is_relative_to(venv)
    first, second = (1 + 3j) * cmath.exp(250_000j), (2 + 4j) * cmath.exp(2_500j)  # pairs (0, 2) and (1, 3) at a million, slowed by 4
    expected = [first.real, second.real, first.imag, second.imag]
    assert [float(value) for value in values] == pytest.approx(expected, abs=2e-6)


def test_command_runs(venv, without_packages):
    output = run(*without_packages, venv / "bin/gnomon", "version", "--json", cwd=venv)
    assert json.loads(output)["kernel_target"]
