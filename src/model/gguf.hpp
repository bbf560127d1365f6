// SPDX-License-Identifier: Apache-2.0
// The reader of GGUF files.
#pragma once

#include <string>
#include <vector>

#include "model/flat_reader.hpp"
#include "model/gguf_architectures.hpp"
#include "model/gguf_header.hpp"

namespace gnomon::files {

/// What a file holds, as far as it matters; the base of its reader, so that it is there before the keys are.
struct GgufContent {
  /// Finds the architecture and its keys. Throws Error(malformed) without one.
  GgufContent(std::span<const std::byte> file, GgufHeader parsed, const std::string& path);

  std::span<const std::byte> bytes;
  GgufHeader header;
  std::string name;                      ///< general.architecture
  nlohmann::json object;                 ///< the keys under it, without the prefix
  const GgufArchitecture* architecture;  ///< null for one that is not known
};

class GgufReader : GgufContent, FlatReader {
 public:
  GgufReader(std::span<const std::byte> file_bytes, GgufHeader parsed, const std::string& file, const std::string& path);
  Model read();

 private:
  enum Kind : std::size_t { full, sliding, still_full, still_sliding, kinds };

  void settle_counts(const std::string& key);
  void read_shape();
  void read_score();
  void read_layers();
  void read_window(std::size_t layers);
  void mark_sliding_layers();
  void mark_still_layers();
  void read_extras();
  void read_temperature();
  void read_learned_rows();
  void read_slopes(const std::optional<Number>& maximum);
  void read_buckets();

  // gguf_rotary.cpp
  void read_rotations();
  bool rotates();
  void read_layout();
  RotaryDeclaration read_unscaled();
  RotaryDeclaration of_sliding(const RotaryDeclaration& scaled, const RotaryDeclaration& unscaled);
  void settle_width(RotaryDeclaration& rotary, const std::optional<Integer>& width);
  void read_scaling(RotaryDeclaration& rotary);
  void read_yarn(RotaryDeclaration& rotary);
  void read_log_multiplier(RotaryDeclaration& rotary);
  void read_sections(RotaryDeclaration& rotary);
  void read_tensors(RotaryDeclaration& rotary);
  void read_divisors(const std::string& tensor, const std::vector<float>& divisors, RotaryDeclaration& rotary);
  bool set_proportional(const std::vector<float>& divisors, const Origin& origin, RotaryDeclaration& rotary) const;
  bool set_llama3_of(const std::vector<float>& divisors, const Origin& origin, RotaryDeclaration& rotary);
  void set_custom(const std::vector<float>& divisors, const Origin& origin, RotaryDeclaration& rotary);

  std::vector<bool> attends_;  ///< layers with heads, where the file has one number per layer
  bool decoder_ = false;
  std::size_t encoder_layers_ = 0;
};

}  // namespace gnomon::files
