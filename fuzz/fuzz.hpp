// SPDX-License-Identifier: Apache-2.0
// What a fuzz target gives to its main: libFuzzer's own, or run.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

/// Good inputs to start from.
std::vector<std::string> fuzz_seeds();
/// Pieces that are worth inserting: keys, words, numbers at the edge of their type.
std::vector<std::string> fuzz_dictionary();

/// What any reader of JSON should be fed: words, numbers at the edge of their type, and what is not JSON.
inline const std::vector<std::string> json_pieces = {
    "null", "true",      "false", "0",  "-1", "1e308", "1e-320", "0.5", "1e18", "18446744073709551615",
    "NaN",  "-Infinity", "\"\"",  "[]", "{}", "\\",    "\"",     "[[",  "\xc3"};
