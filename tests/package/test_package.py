# SPDX-License-Identifier: Apache-2.0
"""The installed library as a stranger meets it: through pkg-config from C, through CMake from C++, and inside another project."""

import json
import math
import os
import pathlib
import re
import shlex
import shutil
import struct
import subprocess

import pytest
from running import ROOT, run

HERE = pathlib.Path(__file__).parent
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def environment(prefix, tmp_path):
    """A home whose ~/.local is the installed prefix, as docs/install.md has it, and the path pkg-config needs."""
    (tmp_path / ".local").symlink_to(prefix)
    (package,) = prefix.rglob("gnomon.pc")
    return os.environ | {"HOME": str(tmp_path), "PKG_CONFIG_PATH": str(package.parent)}


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def llama3(pair, *, factor=8, low=1, high=4, original=8192):
    """Frequency of a pair of the C example: Llama 3.1's rule, from its paper's prose, in doubles."""
    frequency = 500000 ** (-2 * pair / 8)
    turns = original * frequency / (2 * math.pi)
    if turns < low:
        return frequency / factor
    smooth = min(1, (turns - low) / (high - low))
    return (1 - smooth) * frequency / factor + smooth * frequency


def rotated(head, frequencies, position, angle=lambda position, frequency: position * frequency):
    """The first and second halves of a head, each pair (i, i + half) turned by its angle."""
    half = len(frequencies)
    pairs = [
        complex(head[i], head[half + i]) * complex(math.cos(a), math.sin(a))
        for i, a in enumerate(angle(position, frequency) for frequency in frequencies)
    ]
    return [pair.real for pair in pairs] + [pair.imag for pair in pairs]


def far(got, expected):
    return max(abs(a - b) for a, b in zip(got, expected, strict=True))


def numbers(output, word):
    return [float(line.split()[1]) for line in output.splitlines() if line.startswith(word)]


def compile_c(source, out, environment):
    flags = shlex.split(run("pkg-config", "--cflags", "--libs", "gnomon", env=environment))
    run("cc", "-std=c99", *STRICT, source, *flags, "-o", out)


def test_what_is_installed(prefix):
    installed = {path.relative_to(prefix).as_posix() for path in prefix.rglob("*") if path.is_file()}
    public = {path.relative_to(ROOT).as_posix() for path in (ROOT / "include").rglob("*.h*")}
    assert {path for path in installed if path.startswith("include/")} == public
    names = {"libgnomon.a", "gnomon.pc", "gnomon-config.cmake", "gnomon-config-version.cmake", "gnomon-targets.cmake", "gnomon"}
    others = {pathlib.Path(path).name for path in installed - public}
    assert {name for name in others if not re.fullmatch(r"gnomon-targets-\w+\.cmake", name)} == names
    texts = [path.read_text() for path in prefix.rglob("*") if path.suffix in {".pc", ".cmake"}]
    assert not [text for text in texts if str(ROOT) in text or str(prefix.parent) in text], "a path of the machine it was built on"


def test_installed_command_runs(prefix):
    assert json.loads(run(prefix / "bin/gnomon", "list", "--json"))


def test_c_header_is_self_contained(prefix, tmp_path):
    for compiler, suffix in ((["cc", "-std=c99"], "c"), (["c++", "-std=c++20"], "cpp")):
        (tmp_path / f"alone.{suffix}").write_text("#include <gnomon/gnomon.h>\nextern int unused;\n")
        run(*compiler, *STRICT, f"-I{prefix}/include", "-fsyntax-only", tmp_path / f"alone.{suffix}")


def test_c_functions_are_visible_and_nothing_else_is(prefix):
    (library,) = prefix.rglob("libgnomon.a")
    declared = set(re.findall(r"GNOMON_API [\w\s*]+\b(gnomon_\w+)\(", (prefix / "include/gnomon/gnomon.h").read_text()))
    symbols = [line.split() for line in run("readelf", "--symbols", "--wide", library).splitlines()]
    found = {words[7]: words[5] for words in symbols if len(words) == 8 and words[3:5] == ["FUNC", "GLOBAL"] and words[6] != "UND"}
    visible = {name for name, visibility in found.items() if visibility == "DEFAULT"}
    assert len(declared) == 12
    assert visible == declared
    assert len(found) > len(declared), "the functions of C++ are there, hidden"


def test_c_example_of_the_page(environment, tmp_path):
    compile_c(HERE / "c99_program/example.c", tmp_path / "example", environment)
    output = run(tmp_path / "example")
    frequencies = numbers(output, "inv_freq")
    assert frequencies == pytest.approx([llama3(pair) for pair in range(4)], rel=1e-15)
    assert frequencies != pytest.approx([500000 ** (-pair / 4) for pair in range(4)], rel=1e-3), "the base frequencies, unscaled"

    head, bound = list(range(1, 9)), 8 * 2 * 1.8e-7  # docs/numerics.md: 1.8e-7 of |a| + |b|, for each of two rotations
    assert far(numbers(output, "rotated"), rotated(head, frequencies, 1_000_000)) < bound
    in_float32 = rotated(head, frequencies, 1_000_000, lambda position, frequency: float32(position * float32(frequency)))
    assert far(numbers(output, "rotated"), in_float32) > 100 * bound, "an angle rounded to float32"
    assert far(numbers(output, "moved"), rotated(head, frequencies, 999_000)) < 2 * bound
    assert far(numbers(output, "moved"), rotated(head, frequencies, 1_001_000)) > 0.1, "moved the wrong way"


def test_c_behaviour(environment, tmp_path):
    """Every kind of failure, its message, and that nothing was touched."""
    compile_c(HERE / "c99_program/behaviour.c", tmp_path / "behaviour", environment)
    version = re.search(r"VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text().split("project(")[1])[1]
    assert run(tmp_path / "behaviour") == f"version {version}\n"


def expect_app(program):
    """The program of docs/install.md: linear by 4 with theta 10000, so frequencies 1/4 and 1/400, at position 1 000 000."""
    got = numbers(run(program), "rotated")
    assert far(got, rotated([1, 2, 3, 4], [1 / 4, 1 / 400], 1_000_000)) < 1e-5
    assert far(got, rotated([1, 2, 3, 4], [1, 1 / 100], 1_000_000)) > 0.1, "the factor was lost"


def test_find_package_in_a_moved_prefix(prefix, tmp_path):
    run("cmake", "-S", HERE / "cmake_project", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_FLAGS={' '.join(STRICT)}")
    run("cmake", "--build", tmp_path)
    expect_app(tmp_path / "app")


def test_find_package_refuses_another_version(prefix, tmp_path):
    shutil.copytree(HERE / "cmake_project", tmp_path / "project")
    lists = tmp_path / "project/CMakeLists.txt"
    lists.write_text(lists.read_text().replace("gnomon 0.1", "gnomon 0.2"))
    command = ["cmake", "-S", tmp_path / "project", "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "version: 0.1" in result.stderr


@pytest.fixture(scope="module")
def embedded():
    """The project of tests/package/subdirectory with this repository in it. Its build folder stays, since it compiles the library."""
    project, build = ROOT / "build/package/project", ROOT / "build/package/subdirectory"
    shutil.rmtree(project, ignore_errors=True)
    shutil.copytree(HERE / "subdirectory", project)
    shutil.copy2(HERE / "cmake_project/app.cpp", project)
    (project / "gnomon").symlink_to(ROOT)
    quick = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG="]  # this test is about what is built, not about how well
    run("cmake", "-S", project, "-B", build, "-G", "Ninja", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *quick)
    return build


def test_embedded_library_works(embedded):
    run("cmake", "--build", embedded)
    expect_app(embedded / "app")


def test_embedded_library_is_a_library_and_nothing_else(embedded):
    programs = {
        pathlib.Path(entry["file"]).relative_to(ROOT / "build/package/project").parts[:2]
        for entry in json.loads((embedded / "compile_commands.json").read_text())
    }
    assert programs == {("app.cpp",), ("gnomon", "src")}
    assert "Werror" not in (embedded / "build.ninja").read_text()
    (app,) = (
        entry["command"] for entry in json.loads((embedded / "compile_commands.json").read_text()) if entry["file"].endswith("app.cpp")
    )
    assert not re.search(r"-W|-fvisibility|-O", app), app
    cache = re.findall(r"^([A-Za-z]\w*):", (embedded / "CMakeCache.txt").read_text(), re.MULTILINE)
    dependencies = {"HWY_DIR", "hwy_DIR", "fmt_DIR", "nlohmann_json_DIR"}
    ours = [name for name in cache if not re.match(r"(CMAKE|GNOMON|gnomon|app)_", name) and name not in dependencies]
    assert ours == [], "cache entries that could mean something to the project"
    installed = run("cmake", "--install", embedded, "--prefix", embedded / "installed")
    assert "Installing" not in installed


@pytest.mark.parametrize("page", ["c.md", "install.md"])
def test_commands_of_the_pages(page, environment, tmp_path):
    """The shell blocks that use the installed library, from the files that the page shows."""
    for file in [*HERE.glob("c99_program/*"), *HERE.glob("cmake_project/*")]:
        shutil.copy(file, tmp_path)
    blocks = [block for block in BLOCK.findall((ROOT / "docs" / page).read_text()) if "cmake --install" not in block]
    assert len(blocks) == 1
    assert "rotated" in run("bash", "-ec", blocks[0], cwd=tmp_path, env=environment)
