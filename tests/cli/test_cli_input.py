# SPDX-License-Identifier: Apache-2.0
"""What commands take: standard input, and bounds that are told in the words of the command line."""

import json

from rule_texts import DEFAULT


def test_a_dash_is_standard_input(gnomon, refused, llama):
    path = llama(rope_theta=500000.0, max_position_embeddings=8192)
    text = path.read_text()
    model = gnomon("inspect", "-", "--json", text=text, code=0).json
    assert model["source"]["path"] == "-"
    assert model["groups"][0]["rotary"]["theta"] == 500000
    assert gnomon("check", "-", "--json", text=text, code=0).json["models"][0]["path"] == "-"
    assert "same positions" in gnomon("compare", "-", path, text=text, code=0).out
    assert gnomon("freqs", "-", "--json", text=text, code=0).out == gnomon("freqs", path, "--json", code=0).out
    assert gnomon("convert", "-", "--to", "gguf", text=text, code=0).out.startswith("llama.context_length")
    refused("inspect", "-", text="", says="empty")


def test_values_from_standard_input(gnomon):
    gnomon("golden", "--rotary", DEFAULT, "--out", "golden.json", code=0)
    values = gnomon("freqs", "--rotary", DEFAULT, "--json", code=0).out
    assert gnomon("verify", "-", "--golden", "golden.json", "--json", text=values, code=0).json["agrees"]
    wrong = json.dumps([value / 2 for value in json.loads(values)["inv_freq"]])
    assert not gnomon("verify", "-", "--golden", "golden.json", "--json", text=wrong, code=1).json["agrees"]


def test_help_is_that_of_the_builder(refused):
    refused("positions", "pad", says="(see gnomon positions pad --help)")
    refused("freqs", "--lenght", "1", says="(see gnomon freqs --help)")


def test_a_picture_is_refused_under_the_name_of_its_option(refused, llama):
    path = llama(rope_theta=500000.0)
    refused("compare", path, path, "--plot", "d.pdf", says=["--plot", ".svg", "d.pdf"])


def test_ids_are_bounded(refused, gnomon):
    refused("positions", "pack", 1000000000, says=["LENGTH", "1000000000 position ids", "4194304"])
    refused("positions", "pack", 3, "--width", 2000000000, says=["LENGTH", "2000000000"])
    refused("positions", "pad", 4000000, 1, says=["LENGTH", "8000000"])
    refused("positions", "prefill", 100000000, "--chunk", 1000000, says=["PROMPT", "100000000"])
    refused("positions", "decode", 7, "--new", 2000000000, says=["--new", "2000000000"])
    refused("positions", "context-parallel", 1000000000, "--ranks", 2, says=["LENGTH", "1000000000"])
    refused("positions", "mrope", "--family", "qwen2_vl", "image:30000x30000", says=["RUN", "900000000"])
    gnomon("positions", "pack", 100000, "--json", code=0)


def test_lengths_of_extend_and_analyze(refused, gnomon, llama):
    short = llama("short/config.json", rope_theta=500000.0, max_position_embeddings=8192)
    refused("extend", short, "--to", 16384, "--trained-length", 1, says=["--trained-length", "at least 7", "got 1"])
    long = llama("long/config.json", rope_theta=500000.0, max_position_embeddings=10485760)
    refused("extend", long, "--to", 20000000, says=["10485760 positions already", "4194304"])
    refused("extend", short, "--to", 20000000, says=["trained length 8192, up to 4194304", "got 20000000"])
    told = gnomon("analyze", long, "--json", "--positions", "0:64", code=0)
    assert told.json["length"] == 2097152
    assert "10485760 positions; only the first 2097152" in told.err
