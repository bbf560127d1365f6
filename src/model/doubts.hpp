// SPDX-License-Identifier: Apache-2.0
// Doubts: the table of codes, and the collector the readers write to.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "gnomon/model.hpp"

namespace gnomon::files {

// The one table. docs/doubts.md says the same in the same order; a test compares them.
inline constexpr DoubtInfo doubt_table[] = {
    // error: numbers cannot be trusted or made
    {"theta-missing", Level::error, "No base of the frequencies in the file, and the family defines no default.",
     "Guessing 10000 where 500000 was meant turns a key at distance 100 to a mean cosine of 0.51.",
     "Add rope_theta (or rope_parameters.rope_theta) as the model's author states it."},
    {"position-unknown", Level::error, "An unknown family, and no key says how position enters.",
     "No rotary numbers are made; the model may use another encoding.", "Use a reader that knows the family, or give the rule by hand."},
    {"scaling-unknown", Level::error, "The scaling type is not one this library knows.",
     "Ignoring a scaling gives wrong scores at every long distance.", "Check the spelling of rope_type; give the rule by hand."},
    {"rule-not-available", Level::error, "The scaling type is known, but its rule is not offered by this version.",
     "No numbers are made for these layers.", "Use a later version, or a tool that has the rule."},
    {"scaling-type-conflict", Level::error, "type and rope_type stand in one block and differ.",
     "Engines take either; their frequencies differ.", "Remove the wrong one."},
    {"scaling-field-missing", Level::error, "A field the scaling rule needs is missing.", "No numbers are made for these layers.",
     "Add the field."},
    {"value-kind", Level::error, "A key holds a value of another kind than it should (text for a number, a fraction for a count).",
     "The value is not used.", "Correct the value."},
    {"value-invalid", Level::error, "A value lies outside what its rule accepts.", "No numbers are made from it.", "Correct the value."},
    {"shape-missing", Level::error, "The number of layers or heads or the width cannot be found.",
     "Groups or rotary numbers are incomplete.", "Add the key."},
    {"head-dim-fractional", Level::error, "No head_dim, and hidden_size is not a multiple of the number of heads.",
     "The rotated width cannot be known.", "Add head_dim, or correct the shape."},
    {"rotary-width-odd", Level::error, "The rotated width is odd; channels turn in pairs.", "No numbers are made.",
     "Correct the factor or width."},
    {"rotary-width-out-of-range", Level::error, "The rotated width is not within 2 and head_dim.", "No numbers are made.",
     "Correct the factor or width."},
    {"layer-type-unknown", Level::error, "A layer type is not one this library knows.", "The set-up of these layers is not known.",
     "Use a later version."},
    {"layer-type-missing", Level::error, "The rotary parameters are given per layer type, and one type has none.",
     "No numbers are made for these layers.", "Add the block, or null for layers without rotation."},
    {"layer-list-short", Level::error, "The list of layer types has fewer entries than the model has layers.",
     "The set-up of the remaining layers is not known.", "Correct the list or the number of layers."},
    {"keys-not-understood", Level::error, "An unknown family has keys that change how position enters, and no rule reads them.",
     "The numbers made from the other keys may be wrong.", "Use a reader that knows the family."},
    {"layout-unknown", Level::error, "The pair layout depends on the architecture, and this one is not known.",
     "With the wrong layout every score is wrong from position 1 on.", "Give the rotary spec by hand."},
    {"dynamic-length-missing", Level::error, "dynamic scaling grows from the trained length, and the file states none.",
     "The base cannot be computed beyond the trained length.", "Add max_position_embeddings."},
    {"longrope-list-length", Level::error, "A list of longrope divisors does not have one entry for each pair.",
     "No numbers are made for these layers.", "Copy the lists of the model's author in full."},
    {"sections-sum", Level::error, "The sections of an M-RoPE do not add up to the number of pairs.",
     "vLLM and transformers refuse such a file; SGLang rescales the sections and gives the rest to the last.", "Correct mrope_section."},
    // warning: engines will disagree, or a user is likely wrong
    {"family-unknown", Level::warning, "No family of this name is known; the file was read by its keys.",
     "A family's own rules (layout, width, window) may be missed: with the wrong layout every score is wrong.",
     "Compare with the model's code."},
    {"model-type-missing", Level::warning, "The file has no model_type.", "The family was taken from the class name, or is unknown.",
     "Add model_type."},
    {"theta-conflict", Level::warning, "Two keys state different bases; the one inside the rotary block is used.",
     "Engines that take the other base drift: see the doubt's cost.", "Remove the wrong one."},
    {"theta-suspected-default", Level::warning,
     "The base is a default that readers fall back to, and no released file of the family states it.",
     "With 10000 where 1000000 was meant, a key at distance 100 is turned to a mean cosine of 0.47.",
     "Compare with the original config.json."},
    {"theta-missing-suspected", Level::warning,
     "No base in a Llama whose scaling or vocabulary is that of Llama 3; the family's 10000 is used, as transformers does.",
     "Llama 3 was trained with 500000: at distance 100 its keys are turned to a mean cosine of 0.51.",
     "Compare with the original config.json."},
    {"factor-vs-length-ratio", Level::warning, "yarn's factor is not max_position_embeddings over the original length; the factor is used.",
     "Old engines recompute the factor and drift: see the doubt's cost.", "Correct one of the three."},
    {"factor-conflict", Level::warning, "Two keys state different linear factors; the one in the rotary block is used.",
     "Engines that read the other one place every key elsewhere.", "Remove the wrong one."},
    {"original-length-missing", Level::warning, "The scaling rule needs the original length; max_position_embeddings is used for it.",
     "If that is the extended length, the bands of the rule lie at the wrong pairs.", "Add original_max_position_embeddings to the block."},
    {"original-length-conflict", Level::warning,
     "The original length stands inside and outside the rotary block and differs; the inner one is used.",
     "transformers 5 uses the outer one, so its bands lie at other pairs.", "Make them agree."},
    {"length-conflict", Level::warning, "A second key states a length that is neither the declared, the derived nor the original one.",
     "Engines allocate or refuse different lengths.", "Correct the key."},
    {"rope-block-conflict", Level::warning, "rope_scaling and rope_parameters differ; rope_scaling is used, as transformers does.",
     "Engines that read the other block use other frequencies.", "Remove the wrong one."},
    {"flat-block-for-layer-types", Level::warning,
     "The family has parameters per layer type, but the block is flat; it is applied to full-attention layers.",
     "transformers 5 ignores such a block.", "Write one block per layer type."},
    {"keys-conflict", Level::warning, "Two spellings of one key hold different values; the first named is used.", "Engines read either.",
     "Remove the wrong one."},
    {"foreign-key", Level::warning, "A base or partial width stands under another family's spelling; it is used.",
     "transformers does not read it there and uses its default; other engines read it.",
     "Use the spelling of the family (rope_theta, rotary_emb_base, partial_rotary_factor, rotary_pct)."},
    {"rotary-width-conflict", Level::warning, "Two keys state different rotated widths; the first named is used.",
     "Engines that read the other one rotate other channels.", "Remove the wrong one."},
    {"fractional-rotary-width", Level::warning, "head_dim times the partial factor is not whole; it is truncated, as transformers does.",
     "Engines that round differently rotate one pair more or less.", "State a factor that gives a whole even width."},
    {"partial-rotary-ignored", Level::warning, "A partial rotary factor stands in a family whose transformers code rotates the whole head.",
     "Engines that honour the factor rotate fewer channels.", "Remove the key, or check which code the model was trained with."},
    {"layout-conflict", Level::warning, "The file asks for another pair layout than its family's code uses; the family's is used.",
     "With the wrong layout every score is wrong from position 1 on.", "Compare with the code the model was trained with."},
    {"rotation-reversed", Level::warning, "The family's code turns each pair the other way, by minus the angle.",
     "An engine that turns the usual way scores every distance as its opposite, from position 1 on.",
     "Swap the two halves of each head in the query and key projections, or turn by the transposed rotation."},
    {"attention-factor-ignored", Level::warning,
     "attention_factor stands beside a rule that transformers ignores it for; it is not applied.",
     "An engine that applies it multiplies every score by its square.", "Remove the key."},
    {"attn-factor-multiplier", Level::warning, "attn_factor is read as a multiplier of the magnitude.",
     "Engines that do not know the key, or take it as the magnitude itself, scale scores differently.", "Use attention_factor."},
    {"linear-original-unknown", Level::warning,
     "linear scaling without the original length: the maximum may stand before or after the factor.",
     "Engines disagree about the usable length, not about the frequencies.", "State original_max_position_embeddings."},
    {"rope-parameters-only", Level::warning, "The base or the scaling stands in rope_parameters only, in a family that transformers 4 has.",
     "transformers 4, and converters of its time, fall back to a default base and to no scaling without an error: every score is wrong.",
     "Add rope_theta and rope_scaling beside it, or require transformers 5."},
    {"magnitude-conflict", Level::warning, "Two keys state the magnitude of cos and sin, and not the same.",
     "Engines that read the other one multiply every score by the square of their ratio.", "Keep attention_factor only."},
    {"magnitude-by-length", Level::warning, "short_mscale and long_mscale differ: the magnitude depends on the length. The first is used.",
     "Scores beyond the original length are off by the square of their ratio.", "Apply long_mscale in the engine."},
    {"no-rope-list-inverted", Level::warning, "no_rope_layers marks most layers as not rotating; in it 1 means that a layer rotates.",
     "Read the other way round, every layer is wrong.", "Invert the list, if the model's code rotates most layers."},
    {"model-type-vs-position-type", Level::warning,
     "position_embedding_type asks for another encoding than the family has; the key is used.",
     "Engines that go by model_type add a table of positions that was never trained.", "Use the code the file was made for."},
    {"values-rotated", Level::warning, "Values are rotated too.", "Engines that rotate queries and keys only return other values.",
     "Compare with the model's own code."},
    {"trimmed-file", Level::warning, "Keys that every released file of the family states are missing.", "What they state cannot be known.",
     "Get the original config.json."},
    {"scaling-missing-suspected", Level::warning,
     "A Llama of 131072 positions at base 500000 without scaling: the released models carry llama3 scaling.",
     "Without it the mean cosine to the true rotation is 0.77 at position 8192.", "Compare with the original config.json."},
    {"ntk-ambiguous", Level::warning, "Four incompatible rules are called ntk; read as theta * factor^(r/(r-2)).",
     "Engines of another reading use other frequencies for every pair; the doubt's cost is that of vLLM's.",
     "State the changed base as a default rule instead."},
    {"ramp-without-effect", Level::warning,
     "The ramp of yarn begins beyond the last pair, so that no pair is interpolated, or beyond the last channel, so that every pair is.",
     "The model runs unscaled but for the magnitude, or with every pair divided by the factor.", "Check theta and the original length."},
    {"layer-list-length", Level::warning, "The list of layer types has more entries than the model has layers; the first are used.",
     "None, unless the number of layers is the wrong one.", "Correct the list or the number of layers."},
    {"heads-not-divisible", Level::warning, "The number of heads is not a multiple of the number of key and value heads.",
     "Grouped attention is not defined for it.", "Correct the shape."},
    {"frequency-tensor", Level::warning,
     "The file carries frequency divisors as a tensor that match no known rule; they are used as they are.",
     "Other engines, and the model's config.json, may mean another rule.", "Compare with the model's config.json."},
    {"files-conflict", Level::warning, "Two files of one folder state different set-ups; the first named is used.",
     "An engine that reads the other one runs another model. For rotations the message states the position from which they differ by 1 %.",
     "Correct or remove the wrong file."},
    {"file-unreadable", Level::warning, "A file of the folder that belongs to the model cannot be read, and was left out.",
     "Its contradictions with the others are not found.", "Repair or remove the file."},
    {"tensor-conflict", Level::warning, "The shape of a tensor contradicts the keys; the message says which is used.",
     "The model does not load, or runs with another width than the one shown here.", "Correct the key."},
    {"scaling-factor-unstated", Level::warning,
     "use_scaled_rope states no factor, and Meta's code (8) and the Hugging Face files (32) of a model of this shape disagree; 8 is used.",
     "The message states the position from which the two rotations differ by 1 %.", "State the factor, or read the model's config.json."},
    // note: a documented default or alias was used, or one engine ignores a key
    {"theta-missing-family-default", Level::note, "No base in the file; the family's default is used.",
     "None, if the model was trained with the family's default.", "Add rope_theta to be independent of defaults."},
    {"scaling-constants", Level::note,
     "The file says that frequencies are scaled and not how; the constants of the format's code are used.",
     "None, if the model was trained with that code.", "None needed."},
    {"heads-vary", Level::note, "The number of heads differs from layer to layer; the first is shown.", "None for rotations.",
     "None needed."},
    {"engine-ignores-key", Level::note, "An engine that runs such files ignores a key, or a rule of the model; the message names both.",
     "That engine runs another set-up than the one shown here.", "Use an engine that has the rule, or know the difference."},
    {"base-grows-in-steps", Level::note, "The code enlarges the base in steps beyond the trained length; the numbers hold up to it.",
     "None up to the trained length.", "Use the model's own code beyond it."},
    {"rule-not-in-file", Level::note, "One model_type holds models of two encodings and no key says which; the shape decides.",
     "None, for the released models.", "Compare with the model's code."},
    {"mrope-section-missing-family-default", Level::note, "No sections in the file; the family's are used.",
     "None, if the model was trained with the family's default.", "Add mrope_section."},
    {"no-rope-list-empty", Level::note, "no_rope_layers is empty, which stands for the family's interval.",
     "An engine that takes it literally rotates every layer.", "Remove the key, or write the list out."},
    {"head-dim-conflict", Level::note,
     "head_dim is not the width of queries and keys of latent attention; the sum of their two parts is used.",
     "An engine that reads head_dim scales scores wrongly.", "Set head_dim to the sum."},
    {"chunk-and-window", Level::note, "attention_chunk_size stands beside a window; the family's code uses the window.",
     "An engine that uses chunks hides keys.", "Remove attention_chunk_size."},
    {"alibi-vs-learned", Level::note, "learned_pos_emb is true beside ALiBi, which wins.", "An engine that adds a table finds none.",
     "Set learned_pos_emb to false."},
    {"rope-width-not-rotated", Level::note, "A width for rotation is stated in a family that does not rotate.",
     "An engine that rotates the slice scores every distance wrongly.", "None needed."},
    {"rope-keys-unused", Level::note, "Keys about rotation stand in a family whose attention never rotates.",
     "An engine that rotates scores every distance wrongly.", "None needed."},
    {"window-disabled", Level::note, "A window is stated, and another key switches it off.",
     "An engine that reads the window alone hides keys.", "Set sliding_window to null."},
    {"rotary-width-not-in-file", Level::note, "No rotated width in the file; the family's default is used.",
     "None, if the model was trained with the family's default.", "Add partial_rotary_factor."},
    {"shape-missing-family-default", Level::note, "A shape or length is not in the file; the default of the family's class is used.",
     "None: saved files leave defaults out.", "None needed."},
    {"window-missing-family-default", Level::note, "No window in the file; the family's default is used, as transformers does.",
     "Engines without the default attend further back.", "Add sliding_window (null for none)."},
    {"window-larger-than-context", Level::note, "The sliding window is longer than the model's length and masks nothing.",
     "None within the length.", "Set sliding_window to null."},
    {"scaling-stated-twice", Level::note, "One linear factor is stated by two keys in agreement; it is applied once.",
     "An engine that applies both divides every position twice.", "Remove one."},
    {"scaling-type-alias", Level::note, "An old name of a scaling type is used.", "None, where the name is known.",
     "Use the current name."},
    {"factor-derived", Level::note, "yarn's factor is null; max_position_embeddings over the original length is used.", "None.",
     "State the factor."},
    {"beta-default", Level::note, "beta_fast or beta_slow is null or 0; 32 or 1 is used, as transformers does.",
     "An engine that takes 0 literally fails or moves the ramp.", "State 32 and 1, or remove the keys."},
};

/// A code of the table. A code that is not in it does not compile.
class DoubtCode {
 public:
  consteval DoubtCode(const char* code) : info_(find(code)) {}
  constexpr const DoubtInfo& info() const { return *info_; }

 private:
  static consteval const DoubtInfo* find(std::string_view code) {
    for (const auto& info : doubt_table) {
      if (info.code == code) return &info;
    }
    throw "no such doubt";
  }
  const DoubtInfo* info_;
};

/// Collects what a reader doubts, each sentence once.
class Doubts {
 public:
  void add(DoubtCode code, std::vector<std::string> keys, std::string message);
  /// States the two readings behind the doubts with this code and these keys, where they have none yet.
  void set_dispute(DoubtCode code, const std::vector<std::string>& keys, const Dispute& dispute);
  /// The doubts, errors first, otherwise in the order they were raised.
  std::vector<Doubt> take();
  /// The same, added to those a model has.
  void append_to(Model& model);

 private:
  std::vector<Doubt> doubts_;
};

}  // namespace gnomon::files
