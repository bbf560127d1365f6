"""tools/check-dependencies must accept a right tree and reject each wrong one, saying where and why."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "check-dependencies"

RIGHT = {
    "include/gnomon/error.hpp": "#include <string>\n",
    "include/gnomon/spec.hpp": '#include "gnomon/encodings/rotary.hpp"\n',
    "include/gnomon/table.hpp": '#include "gnomon/spec.hpp"\n',
    "include/gnomon/rotate.hpp": '#include "gnomon/table.hpp"\n',
    "include/gnomon/model.hpp": "#include <gnomon/spec.hpp>\n",
    "include/gnomon/gnomon.hpp": '#include "gnomon/error.hpp"\n#include "gnomon/model.hpp"\n',
    "include/gnomon/encodings/rule.hpp": '#include "gnomon/error.hpp"\n',
    "include/gnomon/encodings/rotary.hpp": '#include "gnomon/encodings/rotary/linear.hpp"\n',
    "include/gnomon/encodings/rotary/linear.hpp": '#include <cmath>\n#include "gnomon/encodings/rule.hpp"\n',
    "src/error.cpp": '#include "gnomon/error.hpp"\n',
    "src/spec/json.cpp": '#include <nlohmann/json.hpp>\n#include "gnomon/spec.hpp"\n',
    "src/kernels/rotate-inl.h": '#include "hwy/highway.h"\n// printf("a comment is not code")\n',
    "src/kernels/rotate.cpp": '#include "rotate-inl.h"\n#include "gnomon/rotate.hpp"\nvoid f(char* s) { snprintf(s, 9, "printf(x)"); }\n',
    "src/reference/rotate.cpp": '#include "gnomon/rotate.hpp"\n',
    "src/model/gguf.cpp": '#include <nlohmann/json.hpp>\n#include "gnomon/model.hpp"\n',
    "cli/main.cpp": '#include <iostream>\n#include "gnomon/gnomon.hpp"\n',
    "docs/use.md": "Run ./work/x or `gnomon inspect ~/home/model`.\n",
}

# What is wrong: (file that replaces or joins those above, its text, line reported, words of the message).
WRONG = {
    "vocabulary sees the specification": ("include/gnomon/error.hpp", '#include "gnomon/spec.hpp"\n', 1, "layer 2 is above layer 1"),
    "specification sees the plan": ("include/gnomon/spec.hpp", "\n#include <gnomon/table.hpp>\n", 2, "layer 3 is above layer 2"),
    "plan sees an operation": ("src/plan/table.cpp", '#include "gnomon/rotate.hpp"\n', 1, "layer 4 is above layer 3"),
    "operation sees a model": ("src/reference/rotate.cpp", '#include "gnomon/model.hpp"\n', 1, "layer 5 is above layer 4"),
    "relative path hides the target": ("src/plan/table.cpp", '#include "../model/gguf.cpp"\n', 1, "layer 5 is above layer 3"),
    "public header sees a source": ("include/gnomon/rotate.hpp", '#include "kernels/rotate-inl.h"\n', 1, "public headers only"),
    "rule sees the specification": ("include/gnomon/encodings/rotary/a.hpp", '#include "gnomon/spec.hpp"\n', 1, "rule vocabulary"),
    "rule sees a rule": ("include/gnomon/encodings/bias/a.hpp", '#include "gnomon/encodings/rotary/linear.hpp"\n', 1, "rule vocabulary"),
    "rule sees a third party": ("include/gnomon/encodings/rotary/a.hpp", "#include <fmt/format.h>\n", 1, "standard library only"),
    "kernel sees a specification": ("src/kernels/a.cpp", '#include "gnomon/spec.hpp"\n', 1, "a kernel sees neither"),
    "kernel sees a rule": ("src/kernels/a.cpp", '#include "gnomon/encodings/rotary/linear.hpp"\n', 1, "a kernel sees neither"),
    "kernel sees the reference": ("src/kernels/a.cpp", '#include "reference/rotate.cpp"\n', 1, "a kernel sees neither"),
    "reference sees a kernel": ("src/reference/rotate.cpp", '#include "../kernels/rotate-inl.h"\n', 1, "shares no code"),
    "plan parses JSON": ("src/plan/table.cpp", "#include <nlohmann/json.hpp>\n", 1, "parse JSON"),
    "header brings JSON": ("include/gnomon/model.hpp", "#include <nlohmann/json_fwd.hpp>\n", 1, "parse JSON"),
    "iostream": ("src/model/gguf.cpp", "#include <iostream>\n", 1, "never prints"),
    "std::cerr": ("src/model/gguf.cpp", '\nvoid f() { std::cerr << "x"; }\n', 2, "never prints"),
    "printf": ("include/gnomon/table.hpp", 'inline void f() { std::printf("x"); }\n', 1, "never prints"),
    "fprintf": ("src/spec/json.cpp", 'void f() { fprintf(stderr, "x"); }\n', 1, "never prints"),
    "fmt::print": ("src/spec/json.cpp", 'void f() { fmt::print("x"); }\n', 1, "never prints"),
    "unknown header": ("include/gnomon/novelty.hpp", "\n", 1, "belongs to no layer"),
    "unknown folder": ("src/novelty/a.cpp", "\n", 1, "belongs to no layer"),
    "machine path": ("docs/use.md", "\nSee `/" + "work/main/x`.\n", 2, "folder of one machine"),
    "home folder": ("tools/x.py", 'P = "/' + 'home/me/model"\n', 1, "folder of one machine"),
    "package host": ("Makefile", "a:\n\tpip install -i https://py" + "pi.org/simple x\n", 2, "package host"),
}


def check(root: Path, files: dict[str, str]) -> subprocess.CompletedProcess:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return subprocess.run([sys.executable, TOOL, root], capture_output=True, text=True, check=False)


def test_right_tree_is_accepted(tmp_path):
    result = check(tmp_path, RIGHT)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout


@pytest.mark.parametrize(("file", "text", "line", "words"), WRONG.values(), ids=WRONG.keys())
def test_wrong_tree_is_rejected(tmp_path, file, text, line, words):
    result = check(tmp_path, RIGHT | {file: text})
    assert result.returncode == 1, result.stdout + result.stderr
    (report,) = result.stdout.splitlines()  # this violation, and no other
    assert report.startswith(f"{file}:{line}: ")
    assert words in report


def test_only_files_of_the_repository_count(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    ignored = {".gitignore": "/scratch/\n", "scratch/notes.md": "/" + "work/main\n"}
    assert check(tmp_path, RIGHT | ignored).returncode == 0
    assert check(tmp_path, {"notes.md": "/" + "work/main\n"}).returncode == 1


def test_this_repository():
    result = subprocess.run([sys.executable, TOOL], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
