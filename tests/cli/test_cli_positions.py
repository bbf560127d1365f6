# SPDX-License-Identifier: Apache-2.0
"""gnomon positions: every builder, its table and JSON, and --check with the wrong ids of bug reports."""

import pytest


def part(gnomon, *arguments):
    got = gnomon("positions", *arguments, "--json", code=0).json
    assert list(got) == ["schema", "builder", "parts"]
    assert (got["schema"], got["builder"]) == (1, arguments[0])
    (only,) = got["parts"]
    return only


def next_of(position, slot, tokens):
    return {"position": position, "slot": slot, "tokens": tokens, "rope_delta": position - tokens}


def test_pad(gnomon):
    got = part(gnomon, "pad", 3, 5)
    assert got["ids"] == [[[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]]
    assert got["next"] == [next_of(3, 5, 3), next_of(5, 5, 5)]
    assert part(gnomon, "pad", 3, 5, "--side", "right", "--width", 6)["ids"] == [[[0, 1, 2, 0, 0, 0], [0, 1, 2, 3, 4, 0]]]


def test_rows_of_learned_tables(gnomon):
    assert part(gnomon, "pad", 3, "--width", 5, "--offset", "opt")["table_rows"] == [[1, 1, 2, 3, 4]]
    assert part(gnomon, "pad", 3, "--width", 5, "--side", "right", "--offset", "roberta")["table_rows"] == [[2, 3, 4, 1, 1]]
    assert part(gnomon, "documents", "1,1,0", "--offset", 1)["table_rows"] == [[1, 2, 0]]


def test_pack_and_documents(gnomon):
    packed = part(gnomon, "pack", 2, 3, "--width", 6)
    assert (packed["ids"], packed["cu_seqlens"]) == ([[[0, 1, 0, 1, 2, 0]]], [0, 2, 5])
    assert part(gnomon, "documents", "1,1,2,2,2,0")["ids"] == packed["ids"]


def test_prefill_and_decode(gnomon):
    chunks = gnomon("positions", "prefill", 10, "--chunk", 4, "--cached", "64:70", "--json", code=0).json["parts"]
    assert [chunk["title"] for chunk in chunks] == ["chunk 0", "chunk 1", "chunk 2"]
    assert [id for chunk in chunks for id in chunk["ids"][0][0]] == list(range(64, 74))
    assert [slot for chunk in chunks for slot in chunk["slots"]] == list(range(70, 80))
    assert part(gnomon, "decode", 30, 25)["ids"] == [[[30, 25]]]
    assert part(gnomon, "decode", "9:14:12") == {"slots": [14], "ids": [[[9]]]}
    assert part(gnomon, "decode", 7, "--new", 4)["ids"] == [[[7, 8, 9, 10]]]
    assert part(gnomon, "decode", 7, "--tree=-1,0,0,1,-1") == {"slots": [7, 8, 9, 10, 11], "ids": [[[7, 8, 8, 9, 7]]]}


def test_context_parallel(gnomon):
    ranks = gnomon("positions", "context-parallel", 4, 4, "--ranks", 2, "--json", code=0).json["parts"]
    assert [rank["packed_tokens"] for rank in ranks] == [[0, 3, 4, 7], [1, 2, 5, 6]]
    assert [rank["ids"] for rank in ranks] == [[[[0, 3, 0, 3]]], [[[1, 2, 1, 2]]]]
    one = part(gnomon, "context-parallel", 4, 4, "--ranks", 2, "--rank", 1)
    assert one["title"] == "rank 1"


def test_mrope_names_family_and_version(gnomon):
    got = part(gnomon, "mrope", "--family", "qwen2_vl", "text:4", "image:4x6", "text:2")
    assert (got["family"], got["version"]) == ("qwen2_vl", "original")
    assert got["ids"] == [
        [[0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 7, 8]],
        [[0, 1, 2, 3, 4, 4, 4, 5, 5, 5, 7, 8]],
        [[0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8]],
    ]
    assert got["next"] == [next_of(9, 12, 12)]
    video = ["mrope", "--family", "qwen2_5_vl", "text:1", "video:4x2x2@0.5", "text:1"]
    assert part(gnomon, *video)["ids"][0] == [[0, 1, 2, 3, 4, 5]]
    assert part(gnomon, *video, "--version", "transformers-5.24")["ids"][0] == [[0, 1, 2, 3, 4, 2]]
    assert part(gnomon, *video, "--version", "transformers-5.3")["ids"][0] == [[0, 1, 1, 1, 1, 2]]
    assert part(gnomon, *video, "--tokens-per-second", 4)["ids"][0] == [[0, 1, 3, 5, 7, 8]]
    rows = part(gnomon, "mrope", "--family", "qwen3_vl", "text:1", "/", "image:2x4", "--side", "right")
    assert rows["ids"] == [[[0, 0], [0, 0]], [[0, 0], [0, 0]], [[0, 0], [0, 1]]]


def test_the_table_for_people(gnomon):
    lines = gnomon("positions", "pad", 3, 5, code=0).out.splitlines()
    assert lines[0].split() == ["row", "0", "·", "·", "0", "1", "2"]
    assert len(lines[0]) == len(lines[1])
    assert "position 3 in slot 5 after 3 tokens" in lines[2]
    out = gnomon("positions", "mrope", "--family", "glm4v", "text:2", code=0).out
    for word in ["time", "height", "width", "glm4v", "original"]:
        assert word in out
    assert "· ×28  0..111" in gnomon("positions", "pad", 112, "--width", 140, code=0).out  # long rows are drawn together


@pytest.mark.parametrize(
    ("arguments", "ids", "code"),
    [
        (["pad", 112, "--width", 140], range(140), "padding-counted"),  # T26
        (["documents", "0,0,1,1,1"], [-1, -1, 0, 1, 2], "negative-padding"),
        (["pack", 2, 3], range(5), "documents-run-on"),  # T27
        (["decode", 30, 25], [30, 30], "longest-for-all"),
        (["decode", "9:14:12"], [12], "count-as-position"),  # T28
        (["decode", 7, "--new", 2], [6, 7], "one-too-few"),
        (["context-parallel", 4, 4, "--ranks", 2, "--rank", 0], [0, 3, 4, 7], "packed-index-as-position"),
        (["mrope", "--family", "qwen2_vl", "text:1", "image:2x4"], [0, 1, 1, 0, 1, 2, 0, 1, 1], "height-width-swapped"),
        (
            ["mrope", "--family", "qwen2_5_vl", "video:2x2x2@0.5", "text:1"],
            [0, 0, 1, 0, 0, 1, 0, 0, 1],
            "version-transformers-5.3",
        ),
        (["decode", 256, "--new", 3], [256, 256, 258], "rounded-to-bf16"),  # T02
    ],
)
def test_check_names_the_mistake(gnomon, tmp_path, arguments, ids, code):
    (tmp_path / "ids.txt").write_text(str(list(ids)))
    report = gnomon("positions", *arguments, "--check", "ids.txt", "--json", code=1).json
    assert list(report) == ["schema", "right", "compared", "different", "first", "mistakes"]
    assert not report["right"]
    assert code in [mistake["code"] for mistake in report["mistakes"]]
    assert f"{code}: " in gnomon("positions", *arguments, "--check", "ids.txt", code=1).out


def test_check_of_right_and_of_unexplained_ids(gnomon, tmp_path):
    (tmp_path / "right.txt").write_text("[[0 0 0 1 2]\n [0 1 2 3 4]]")  # as NumPy prints them
    assert "right: 8 ids" in gnomon("positions", "pad", 3, 5, "--check", "right.txt", code=0).out
    assert gnomon("positions", "pad", 3, 5, "--check", "-", "--json", text="9,9,0,1,2,0,1,2,3,4", code=0).json["right"]
    out = gnomon("positions", "decode", 5, 9, "--check", "-", text="5 77", code=1).out
    assert "1 of 2 ids differ" in out
    assert "token 1: expected 9, got 77" in out
    assert "No known mistake" in out


def test_wrong_use(refused, tmp_path):
    refused("positions", says="required")
    refused("positions", "pad", says="LENGTH")
    refused("positions", "pad", "x", says=["LENGTH", '"x"'])
    refused("positions", "pad", 3, "--side", "top", says=["--side", "left | right"])
    refused("positions", "pad", 3, "--width", 2, says=["width", "at least 3"])
    refused("positions", "pad", 10**12, says="at most")
    refused("positions", "documents", "1,1", "1", says=["documents", "2 × 2"])
    refused("positions", "pad", 3, "--width", "", says="empty")
    refused("positions", "prefill", 5, "--chunk", 0, says="chunk")
    refused("positions", "prefill", 10**9, "--chunk", 1, says="--chunk: more than 4096")
    refused("positions", "context-parallel", 8, "--ranks", 10**9, says="--ranks: more than 4096")
    refused("positions", "prefill", 5, 6, "--chunk", 2, says=["PROMPT", "got 2"])
    refused("positions", "decode", "1:2:3:4", says="POSITION[:SLOT[:TOKENS]]")
    refused("positions", "decode", 1, "--new", 2, "--tree", 0, says="--tree")
    refused("positions", "context-parallel", 7, "--ranks", 2, says=["7 tokens", "pad it to 8"])
    refused("positions", "context-parallel", 8, "--ranks", 2, "--rank", 2, says=["rank", "0 to 1"])
    refused("positions", "mrope", "text:1", says="--family")
    refused("positions", "mrope", "--family", "qwen", "text:1", says=["--family", "qwen2_vl"])
    refused("positions", "mrope", "--family", "qwen2_vl", "sound:1", says=["RUN", "text:N"])
    refused("positions", "mrope", "--family", "qwen2_vl", "image:3x4", says=["grid", "multiple of 2"])
    refused("positions", "mrope", "--family", "qwen2_5_vl", "text:1", "--tokens-per-second", 0, says=["tokens_per_second", "0"])
    refused("positions", "mrope", "--family", "qwen2_5_vl", "video:2x2x2@soon", says=["RUN", '"soon"'])
    refused("positions", "mrope", "--family", "glm4v", "text:1", "--tokens-per-second", 2, says="tokens_per_second")
    refused("positions", "mrope", "--family", "qwen3_vl", "video:2x2x2", says="timestamp")


def test_wrong_files(refused, tmp_path):
    refused("positions", "pad", 3, "--check", "missing.txt", says=["missing.txt", "No such file"])
    for text, says in [("0 1", "3 numbers"), ("0 1 2 3", "got more"), ("0 one 2", '"one"'), ("0 1.5 2", '"1.5"'), ("9" * 10**6, "999")]:
        (tmp_path / "ids.txt").write_text(text)
        refused("positions", "pad", 3, "--check", "ids.txt", says=says)
    refused("positions", "pad", 3, "--check", tmp_path, says=str(tmp_path))
    refused("positions", "prefill", 4, "--chunk", 2, "--check", "-", says="--check")
