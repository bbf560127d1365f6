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
