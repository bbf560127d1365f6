// SPDX-License-Identifier: Apache-2.0
// Conversion: what is asked of which layers, the dialect's words for it, and what is lost when they are read back.
#include "gnomon/convert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "gnomon/analysis.hpp"
#include "gnomon/frequencies.hpp"
#include "model/dialects/dialect.hpp"
#include "model/dialects/words.hpp"
#include "model/families.hpp"
#include "model/formats.hpp"
#include "model/gguf_architectures.hpp"
#include "spec/fields.hpp"

namespace gnomon {
namespace {

using files::DialectFile;
using files::Frame;
using files::OrderedJson;
using files::ReadBack;
using files::Remarks;
using files::Request;
using files::softmax_multiplier;

constexpr double tolerance = 1e-6;  // of a frequency or magnitude: files and flags are float32

const DialectFile& file_of(Dialect dialect, bool compatible) {
  switch (dialect) {
    case Dialect::transformers:
      return compatible ? files::compatible_dialect : files::transformers_dialect;
    case Dialect::transformers_v4:
      return files::transformers_v4_dialect;
    case Dialect::llama_cpp:
      return files::llama_cpp_dialect;
    case Dialect::gguf:
      return files::gguf_dialect;
    case Dialect::vllm:
      return files::vllm_dialect;
    case Dialect::exllama:
      return files::exllama_dialect;
    case Dialect::mlx:
      return files::mlx_dialect;
  }
  throw Error(ErrorCode::invalid_argument, fmt::format("dialect: expected {}", enum_choices<Dialect>()));
}

// ── what is asked ──

std::string type_of(const Mask& mask) {
  if (mask.chunk) return "chunked_attention";
  return mask.window ? "sliding_attention" : "full_attention";
}

/// Layers of the main part that rotate, by type and rotation; those without a window first.
struct Asked {
  Request request;
  std::vector<std::vector<int>> layers;  ///< of each entry of the request

  void add(const LayerGroup& group) {
    const std::string type = type_of(group.spec.mask);
    auto& known = request.frame.layers;
    std::size_t at = 0;
    while (at < known.size() && (known[at].type != type || !(known[at].own == *group.spec.rotary))) at++;
    if (at == known.size()) {
      const bool leads = !group.spec.mask.window && !known.empty() && known.front().type == "sliding_attention";
      at = leads ? 0 : at;
      known.insert(known.begin() + static_cast<std::ptrdiff_t>(at), {type, *group.spec.rotary});
      layers.insert(layers.begin() + static_cast<std::ptrdiff_t>(at), std::vector<int>());
    }
    layers[at].insert(layers[at].end(), group.layers.begin(), group.layers.end());
  }
};

/// What the dialects know of a model beside its layers.
void describe(const Model& model, Frame& frame) {
  frame.model_type = model.type;
  frame.declared = model.declared;
  frame.is_gguf = model.format == "gguf";
  const auto* family = frame.is_gguf ? files::family_of_architecture(model.type) : files::family_of_model_type(model.type);
  frame.theta_key = family != nullptr ? family->theta_key : "rope_theta";
  frame.fraction_key = family != nullptr ? family->fraction_key : "partial_rotary_factor";
  if (frame.is_gguf) {
    frame.architecture = model.type;
  } else {
    frame.architecture = files::gguf_name_of(model.type);
  }
}

Asked rotating_layers(const Model& model) {
  Asked asked;
  for (const auto& group : model.groups) {
    if (group.part != model.groups.front().part || !group.spec.rotary) continue;
    if (group.spec.rotary->axes > 1) {
      throw Error(ErrorCode::unsupported, "frequencies that begin anew for each axis are the code of a model, not a setting of an engine");
    }
    asked.add(group);
  }
  if (asked.layers.empty()) {
    throw Error(ErrorCode::unsupported, fmt::format("{}: no layer rotates, so there is no rotary setting to convert", model.path));
  }
  describe(model, asked.request.frame);
  for (const auto& layer : asked.request.frame.layers) asked.request.asked.push_back(layer.own);
  return asked;
}

/// How long the sequences of a rule get: its factor times the length it was trained at.
std::int64_t reach(const RotarySpec& spec, std::int64_t trained) {
  return std::visit(
      [&](const auto& rule) {
        double length = static_cast<double>(trained), factor = 1;
        if constexpr (requires { rule.original_max_position_embeddings; })
          length = static_cast<double>(rule.original_max_position_embeddings);
        if constexpr (requires { rule.max_position_embeddings; }) length = static_cast<double>(rule.max_position_embeddings);
        if constexpr (requires { rule.factor; }) factor = rule.factor;
        return static_cast<std::int64_t>(std::min(std::round(length * factor), 2e9));
      },
      spec.rule);
}

bool has_factor(const RotarySpec& spec) {
  return std::visit([](const auto& rule) { return requires { rule.factor; }; }, spec.rule);
}

/// What a method leaves short: of the length that is asked for, or of the one that the model has without it.
void note_reach(const Model& model, const ConvertOptions& options, const RotarySpec& asked, std::int64_t reached,
                std::vector<std::string>& notes) {
  if (!has_factor(asked) || reached < 1) return;
  const std::int64_t wanted = options.context ? *options.context : model.declared.value_or(0);
  if (wanted <= reached) return;
  notes.push_back(fmt::format("{} reaches {} tokens, its factor times the original length; {} {}", options.method, reached,
                              options.context ? "the context asked for is" : "the model declares", wanted));
}

/// The length of a model's own setting: the declared one, unless that stands before a scaling that is always in force.
std::int64_t own_context(const Model& model, const RotaryRule& rule) {
  const auto declared = model.declared.value_or(0), derived = model.derived.value_or(0);
  const bool extends = std::holds_alternative<rotary::Yarn>(rule) || std::holds_alternative<rotary::Linear>(rule);
  return extends || declared == 0 ? std::max(declared, derived) : declared;
}

/// A method replaces the rule of all layers that rotate where they agree, and of those without a window where they do not.
void apply_method(const std::string& method, std::optional<std::int64_t> trained, Request& request) {
  const auto& layers = request.frame.layers;
  const bool agree = std::all_of(layers.begin(), layers.end(), [&](const auto& layer) { return layer.own == layers.front().own; });
  for (std::size_t i = 0; i < layers.size(); i++) {
    if (agree || layers[i].type != "sliding_attention") request.asked[i] = with_method(layers[i].own, method, trained);
  }
}

// ── what is lost ──

std::vector<double> numbers(const RotarySpec& spec, std::int64_t length) { return frequencies(spec, Numerics::exact, length).inv_freq; }

bool differ(double a, double b) { return !(std::abs(a - b) <= tolerance * std::max(std::abs(a), std::abs(b))); }

/// The largest difference of a pair, in radians at a distance of one.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); i++) {
    // A pair that turns less than 1e-30 of a radian stands still: files say so with a divisor of 1e30.
    if (differ(a[i], b[i]) && std::max(a[i], b[i]) > 1e-25) largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

class Comparison {
 public:
  Comparison(const Asked& asked, const Remarks& remarks, Conversion& result) : asked_(asked), remarks_(remarks), result_(result) {}

  /// Adds what one reading loses, unless another one lost it before.
  void compare(const ReadBack& runs) {
    for (std::size_t layer = 0; layer < runs.size(); layer++) {
      const RotarySpec& wanted = asked_.request.asked[layer];
      if (!runs[layer]) {
        add(layer, "frequencies", "the setting is refused");
        continue;
      }
      const RotarySpec& got = *runs[layer];
      if (wanted.rotary_dim != got.rotary_dim) {
        add(layer, "width", fmt::format("{} channels turn instead of {}", got.rotary_dim, wanted.rotary_dim));
      } else {
        compare_frequencies(layer, wanted, got);
      }
      const double before = effective_attention_factor(wanted), after = effective_attention_factor(got);
      if (differ(before, after)) add(layer, "attention_factor", fmt::format("{} instead of {}", after, before));
      if (const double asked = softmax_multiplier(wanted), runs_with = softmax_multiplier(got); differ(asked, runs_with))
        add(layer, "softmax_scale", fmt::format("yarn multiplies the scale of latent attention by {}, not by {}", runs_with, asked));
      if (wanted.sections != got.sections || wanted.section_order != got.section_order) add(layer, "axes", axes_reason(wanted));
      if (is_xpos(wanted) && !is_xpos(got)) add(layer, "decay", "");
    }
  }

  void add_certain() {
    for (const auto& reason : remarks_.reasons) {
      if (reason.certain) add(reason.layer, reason.field, "");
    }
  }

 private:
  static std::string axes_reason(const RotarySpec& wanted) {
    if (wanted.section_order != SectionOrder::time_last) return "other sections";
    return "no key states that time has the last pairs: it is an order of the code of ERNIE 4.5 VL";
  }

  static bool is_xpos(const RotarySpec& spec) { return std::holds_alternative<rotary::Xpos>(spec.rule); }

  void compare_frequencies(std::size_t layer, const RotarySpec& wanted, const RotarySpec& got) {
    std::int64_t worst_length = 0;
    double worst = 0;
    for (const std::int64_t length : {std::int64_t{1}, std::max<std::int64_t>(asked_.request.context, 1)}) {
      const double difference = largest_difference(numbers(wanted, length), numbers(got, length));
      if (difference > worst) worst = difference, worst_length = length;
    }
    if (worst == 0) return;
    Loss* loss = add(layer, "frequencies", "other frequencies");
    if (loss == nullptr) return;
    const Drift drift(wanted, got, worst_length);
    loss->at = asked_.request.context > 0 ? asked_.request.context : 4096;
    loss->mean_cosine = drift.mean_cosine(loss->at);
    loss->apart_from = drift.parting().position;
    if (result_.context > 1 && numbers(wanted, 1) != numbers(wanted, result_.context)) {
      loss->message += worst_length == 1 ? "; short sequences differ most" : "; long sequences differ most";
    }
  }

  Loss* add(std::size_t layer, const std::string& field, const std::string& otherwise) {
    const auto& layers = asked_.layers[layer];
    for (const auto& loss : result_.losses) {
      if (loss.field == field && loss.layers == layers) return nullptr;
    }
    std::set<std::string> why;
    std::string message;
    for (const auto& reason : remarks_.reasons) {
      if (reason.layer != layer || reason.field != field || !why.insert(reason.why).second) continue;
      message += fmt::format("{}{}", message.empty() ? "" : "; ", reason.why);
    }
    if (!otherwise.empty() && (message.empty() || field == "attention_factor"))
      message += fmt::format("{}{}", message.empty() ? "" : ": ", otherwise);
    result_.losses.push_back({layers, field, message, {}, 0, {}});
    return &result_.losses.back();
  }

  const Asked& asked_;
  const Remarks& remarks_;
  Conversion& result_;
};

/// What is lost alike in several groups of layers is said once.
void merge_losses(std::vector<Loss>& losses) {
  for (std::size_t i = 0; i < losses.size(); i++) {
    for (std::size_t j = losses.size() - 1; j > i; j--) {
      if (losses[j].field != losses[i].field || losses[j].message != losses[i].message || losses[j].mean_cosine != losses[i].mean_cosine)
        continue;
      losses[i].layers.insert(losses[i].layers.end(), losses[j].layers.begin(), losses[j].layers.end());
      std::sort(losses[i].layers.begin(), losses[i].layers.end());
      losses.erase(losses.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
}

void compare_dual_chunk(const Model& model, Dialect dialect, Conversion& result) {
  if (dialect == Dialect::vllm) return;
  for (const auto& group : model.groups) {
    if (!group.spec.dual_chunk) continue;
    result.losses.push_back(
        {group.layers,
         "dual_chunk",
         fmt::format("{} has no dual chunk attention; distances beyond the trained length are seen as they are", enum_name(dialect)),
         {},
         0,
         {}});
  }
}

// ── text ──

std::string shell_word(const std::string& text) {
  const std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@+";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string text_of(Form form, const OrderedJson& setting) {
  if (form == Form::json) return setting.dump(2) + "\n";
  std::string text;
  for (const auto& entry : setting) {
    if (form == Form::flags) {
      text += fmt::format("{}{}", text.empty() ? "" : " ", shell_word(entry.get<std::string>()));
    } else {
      text += fmt::format("{}  {}  {}\n", entry["key"].get<std::string>(), entry["type"].get<std::string>(), entry["value"].dump());
    }
  }
  return form == Form::flags ? text + "\n" : text;
}

Conversion convert_asked(const Asked& asked, Dialect dialect, bool compatible) {
  const DialectFile& file = file_of(dialect, compatible);
  Remarks remarks;
  const OrderedJson setting = file.write(asked.request, remarks);
  Conversion result;
  result.dialect = dialect;
  result.form = file.form;
  result.setting = setting.dump();
  result.text = text_of(file.form, setting);
  result.context = asked.request.context;
  Comparison comparison(asked, remarks, result);
  std::vector<ReadBack> readings;
  for (const auto read : file.readers) readings.push_back(read(setting, asked.request.frame));
  for (const auto& runs : readings) comparison.compare(runs);
  comparison.add_certain();
  for (std::size_t i = 0; i < asked.layers.size(); i++) {
    result.layers.push_back({asked.layers[i], asked.request.asked[i], readings.front()[i]});
  }
  result.notes = remarks.notes;
  return result;
}

void check_options(Dialect dialect, const ConvertOptions& options) {
  if (options.compatible && dialect != Dialect::transformers) {
    throw Error(ErrorCode::invalid_argument, "compatible: is a config of versions 4 and 5 of transformers, and for that dialect only");
  }
  if (options.context && (*options.context < 1 || *options.context > 2000000000)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("context: expected 1 to 2000000000 tokens, got {}", *options.context));
  }
}

OrderedJson json_of(const Loss& loss) {
  OrderedJson cost = nullptr;
  if (loss.mean_cosine) {
    cost = {{"mean_cosine", *loss.mean_cosine}, {"at", loss.at}, {"apart_from", nullptr}};
    if (loss.apart_from) cost["apart_from"] = *loss.apart_from;
  }
  return {{"layers", loss.layers}, {"field", loss.field}, {"message", loss.message}, {"cost", cost}};
}

}  // namespace

Dialect dialect_of(std::string_view name) {
  if (const auto dialect = enum_of<Dialect>(name)) return *dialect;
  throw Error(ErrorCode::invalid_argument, fmt::format("dialect: expected {}, got \"{}\"", enum_choices<Dialect>(), name));
}

Conversion convert(const Model& model, Dialect dialect, const ConvertOptions& options) {
  check_options(dialect, options);
  files::refuse_doubtful(model);
  Asked asked = rotating_layers(model);
  Request& request = asked.request;
  const auto trained = model.original ? model.original : model.declared;
  if (options.method != "none") {
    apply_method(options.method, trained, request);
    request.context = reach(request.asked.front(), trained.value_or(0));
  } else {
    request.context = own_context(model, request.asked.front().rule);
  }
  if (options.context) request.context = *options.context;
  Conversion result = convert_asked(asked, dialect, options.compatible);
  if (options.method != "none") {
    note_reach(model, options, request.asked.front(), reach(request.asked.front(), trained.value_or(0)), result.notes);
  }
  compare_dual_chunk(model, dialect, result);
  merge_losses(result.losses);
  return result;
}

Conversion convert(const RotarySpec& spec, Dialect dialect, const ConvertOptions& options) {
  check_options(dialect, options);
  validate(spec);
  if (spec.axes > 1) {
    throw Error(ErrorCode::unsupported, "frequencies that begin anew for each axis are the code of a model, not a setting of an engine");
  }
  RotarySpec own = spec;  // what files without a scaling would say
  own.rule = rotary::Default{};
  own.attention_factor.reset();
  if (own.theta <= 0) own.theta = 10000;
  Asked asked;
  asked.layers = {{}};
  asked.request.frame = {"", "llama", "rope_theta", "partial_rotary_factor", false, {}, {{"full_attention", own}}};
  asked.request.asked = {with_method(spec, options.method, std::nullopt)};
  asked.request.context = options.context.value_or(reach(asked.request.asked.front(), 0));
  return convert_asked(asked, dialect, options.compatible);
}

std::string to_json(const Conversion& conversion) {
  OrderedJson layers = OrderedJson::array(), losses = OrderedJson::array();
  for (const auto& group : conversion.layers) {
    OrderedJson runs = nullptr;
    if (group.runs) runs = OrderedJson::parse(to_json(*group.runs));
    layers.push_back({{"layers", group.layers}, {"asked", OrderedJson::parse(to_json(group.asked))}, {"runs", runs}});
  }
  for (const auto& loss : conversion.losses) losses.push_back(json_of(loss));
  const OrderedJson json = {{"schema", 1},
                            {"dialect", std::string(enum_name(conversion.dialect))},
                            {"form", std::string(enum_name(conversion.form))},
                            {"context", conversion.context > 0 ? OrderedJson(conversion.context) : OrderedJson(nullptr)},
                            {"setting", OrderedJson::parse(conversion.setting)},
                            {"text", conversion.text},
                            {"equal", conversion.losses.empty()},
                            {"losses", losses},
                            {"notes", conversion.notes},
                            {"layers", layers}};
  return json.dump();
}

}  // namespace gnomon
