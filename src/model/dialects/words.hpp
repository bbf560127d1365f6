// SPDX-License-Identifier: Apache-2.0
// What several dialects share: a rule as an engine that lacks it can say it, and the words of transformers, which most engines read.
#pragma once

#include <span>

#include "model/dialects/dialect.hpp"

namespace gnomon::files {

/// Frequencies that are theta^(-2i/r) / scale for every pair.
struct BaseAndScale {
  double theta, scale;
};
/// Nothing for frequencies of another shape.
std::optional<BaseAndScale> base_and_scale(const RotarySpec& spec, std::optional<std::int64_t> length);

/// Who is asked for, for messages, and which rules it knows by name.
struct Engine {
  std::string_view name;
  std::span<const std::string_view> rules;
};

/// Layer `layer` of a request in the rules an engine knows: as it is, or as another base and a linear scale that give the same numbers at
/// the request's context; failing that without scaling, which is a loss. The magnitude that is asked for becomes an explicit one where the
/// rule changes. Throws Error(unsupported) where there is no base to fall back to.
RotarySpec in_rules_of(const Engine& engine, const Request& request, std::size_t layer, Remarks& remarks);

/// Latent attention (MLA): the rotated channels are a projection of their own.
inline bool is_latent(const RotarySpec& spec) { return spec.rotary_offset != 0; }
/// What yarn multiplies the softmax scale of latent attention by.
double softmax_multiplier(const RotarySpec& spec);

/// Whether the frequencies depend on the length of the sequence, and why an engine that decides nothing by it loses them.
bool depends_on_length(const RotarySpec& spec);
std::string fixed_length_reason(std::string_view engine, const Request& request, std::size_t layer);

/// A magnitude for a rule the engine applies none with.
void check_magnitude(const Engine& engine, const RotarySpec& said, std::span<const std::string_view> with_magnitude, std::size_t layer,
                     Remarks& remarks);

/// rope_type and the fields of the rule and its sections, in the words of transformers; no base, no width, no attention_factor.
OrderedJson rope_block(const RotarySpec& spec);

/// One block where all are equal or the layers are of one type; else one for each type, that of its first layers. Layers that get another
/// block than theirs are lost.
OrderedJson by_layer_type(const Engine& engine, const Request& request, const std::vector<OrderedJson>& blocks, Remarks& remarks);
/// The block of a layer in what by_layer_type() made.
OrderedJson block_of_layer(const OrderedJson& parameters, const LayerFrame& layer);
bool is_by_layer_type(const OrderedJson& parameters);

/// Where keys of config.json hold one rule for all layers: the one of the first layers is in `setting`. A base of its own for layers with a
/// window is a key of Gemma 3; layers that need anything else are lost.
void write_sliding_base(const Engine& engine, const Request& request, const std::vector<RotarySpec>& said, OrderedJson& setting,
                        Remarks& remarks);

/// What the ramp of yarn loses where an engine has it over whole pairs only.
void check_ramp(const Engine& engine, const RotarySpec& said, bool has_truncate, std::size_t layer, Remarks& remarks);

/// The fraction f with int(head_dim * f) = rotary_dim as engines compute it, for rules that rotate part of a head.
std::optional<double> partial_rotary_factor(const RotarySpec& spec);

/// Base and partial width at the top level of config.json, in the spelling of the model's family.
void write_base(const Frame& frame, const RotarySpec& said, OrderedJson& setting);

/// What transformers reads in keys of config.json for one layer of a frame; nothing where it refuses them.
std::optional<RotarySpec> read_as_config(const OrderedJson& keys, const Frame& frame, std::size_t layer);

/// The frequencies of a spec divided pair by pair, as a rule `custom` where that changes them, with the magnitude of the spec.
RotarySpec with_divisors(const RotarySpec& spec, const std::vector<double>& divisors, std::optional<std::int64_t> length);

/// theta^(-2i/r) over the frequencies of the spec: what tensors of divisors hold, 1e30 for a pair that stands still. For a rule without a
/// base, that of the usual one.
std::vector<double> divisors_of(const RotarySpec& spec, std::optional<std::int64_t> length);
inline constexpr double usual_theta = 10000;

/// A value for an engine that holds it as float32: the shortest decimal that reads back to the same one. Throws Error(unsupported) for one
/// that is too large.
double as_f32(double value);

/// What llama.cpp takes from the files of a model however it is set up: pairs that follow no axis of a rotation whose axes take turns.
void check_axes_in_ggml(const RotarySpec& spec, std::size_t layer, Remarks& remarks);

}  // namespace gnomon::files
