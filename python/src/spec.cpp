// SPDX-License-Identifier: Apache-2.0
// The class of each rule follows from its field list: constructor keywords with defaults, attributes, docstring, ==, repr.
#include <fmt/format.h>

#include "bindings.hpp"
#include "spec/fields.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using gnomon::AbsoluteSpec;
using gnomon::RotarySpec;

namespace {

/// Texts that nanobind keeps pointers to; they live as long as the module.
const char* keep(std::string text) {
  static std::vector<std::unique_ptr<std::string>> texts;
  return texts.emplace_back(std::make_unique<std::string>(std::move(text)))->c_str();
}

template <class Value>
std::string python_type() {
  if constexpr (std::is_enum_v<Value>)
    return "str";
  else if constexpr (std::is_same_v<Value, bool>)
    return "bool";
  else if constexpr (std::is_same_v<Value, std::optional<double>>)
    return "float | None";
  else if constexpr (std::is_same_v<Value, std::int64_t>)
    return "int";
  else if constexpr (std::is_same_v<Value, std::vector<double>>)
    return "Sequence[float]";
  else
    return "float";
}

template <class Value>
nb::object to_python(const Value& value) {
  if constexpr (std::is_enum_v<Value>)
    return nb::str(gnomon::enum_name(value).data(), gnomon::enum_name(value).size());
  else if constexpr (std::is_same_v<Value, bool>)
    return nb::bool_(value);
  else if constexpr (std::is_same_v<Value, std::optional<double>>)
    return value ? nb::object(nb::float_(*value)) : nb::none();
  else if constexpr (std::is_same_v<Value, std::int64_t>)
    return nb::int_(value);
  else if constexpr (std::is_same_v<Value, std::vector<double>>)
    return nb::cast(value);
  else
    return nb::float_(value);
}

[[noreturn]] void refuse(std::string_view name, std::string_view expected, nb::handle got) {
  throw gnomon::Error(gnomon::ErrorCode::invalid_argument, fmt::format("{}: expected {}, got {}", name, expected, nb::repr(got).c_str()));
}

template <class Value>
void from_python(std::string_view name, nb::handle object, Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    const auto found = nb::isinstance<nb::str>(object) ? gnomon::enum_of<Value>(nb::cast<std::string>(object)) : std::nullopt;
    if (!found) refuse(name, gnomon::enum_choices<Value>(), object);
    value = *found;
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (!nb::isinstance<nb::bool_>(object)) refuse(name, "True or False", object);
    value = nb::cast<bool>(object);
  } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
    if (object.is_none())
      value = std::nullopt;
    else
      from_python(name, object, value.emplace());
  } else if constexpr (std::is_same_v<Value, std::int64_t>) {
    if (!nb::isinstance<nb::int_>(object) || !nb::try_cast(object, value)) refuse(name, "an integer", object);
  } else if constexpr (std::is_same_v<Value, std::vector<double>>) {
    if (!nb::try_cast(object, value)) refuse(name, "a list of numbers", object);
  } else {
    if (!nb::isinstance<nb::float_>(object) && !nb::isinstance<nb::int_>(object)) refuse(name, "a number", object);
    value = nb::cast<double>(object);
  }
}

/// "(self, *, factor: float, beta_fast: float = 32.0)"
template <class Rule>
std::string signature() {
  std::string text = "def __init__(self";
  std::string keywords;
  gnomon::each_field<Rule>([&](const auto& field) {
    using Value = std::remove_cvref_t<decltype(Rule{}.*field.member)>;
    keywords += fmt::format(", {}: {}", field.name, python_type<Value>());
    if (!field.required) keywords += fmt::format(" = {}", nb::repr(to_python(Rule{}.*field.member)).c_str());
  });
  return text + (keywords.empty() ? "" : ", *" + keywords) + ") -> None";
}

template <class Rule>
std::string docstring() {
  std::string text = fmt::format("{}\n\n    {}\n\nSource: {}\n", Rule::summary, Rule::formula, Rule::citation);
  gnomon::each_field<Rule>(
      [&](const auto& field) { text += fmt::format("\n{}: {}{}", field.name, field.doc, field.required ? "" : " (optional)"); });
  return text;
}

template <class Rule>
Rule construct(const nb::kwargs& keywords) {
  Rule rule;
  std::size_t used = 0;
  gnomon::each_field<Rule>([&](const auto& field) {
    const std::string name(field.name);
    if (keywords.contains(name.c_str())) {
      from_python(field.name, nb::object(keywords[name.c_str()]), rule.*field.member);
      used++;
    } else if (field.required) {
      throw nb::type_error(fmt::format("{}: missing keyword argument of rule {}", field.name, Rule::name).c_str());
    }
  });
  if (used != keywords.size())
    throw nb::type_error(fmt::format("rule {}: unknown keyword; its signature is {}", Rule::name, signature<Rule>()).c_str());
  return rule;
}

template <class Rule>
std::string represent(const Rule& rule) {
  std::string text;
  gnomon::each_field<Rule>([&](const auto& field) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", field.name, nb::repr(to_python(rule.*field.member)).c_str());
  });
  return text;
}

template <class Rule>
nb::class_<Rule> bind_rule(nb::module_& module) {
  const auto kind = nb::cast<std::string>(module.attr("__name__")).substr(std::string("gnomon._core.").size());
  std::string name(Rule::name);
  name[0] = static_cast<char>(name[0] - 'a' + 'A');
  nb::class_<Rule> type(module, keep(name), keep(docstring<Rule>()));
  type.def(
      "__init__", [](Rule* self, const nb::kwargs& keywords) { new (self) Rule(construct<Rule>(keywords)); },
      nb::sig(keep(signature<Rule>())));
  gnomon::each_field<Rule>([&](const auto& field) {
    using Value = std::remove_cvref_t<decltype(Rule{}.*field.member)>;
    const auto member = field.member;
    type.def_prop_ro(
        keep(std::string(field.name)), [member](const Rule& rule) { return to_python(rule.*member); },
        nb::sig(keep(fmt::format("def {}(self) -> {}", field.name, python_type<Value>()))), keep(std::string(field.doc)));
  });
  type.def("__eq__", [](const Rule& a, const Rule& b) { return a == b; }, nb::is_operator());
  type.def("__repr__", [kind, name](const Rule& rule) { return fmt::format("gnomon.{}.{}({})", kind, name, represent(rule)); });
  type.attr("name") = std::string(Rule::name);
  return type;
}

/// Pickling, and with it copying, through the canonical JSON.
template <class Spec, class Read>
void make_picklable(nb::class_<Spec>& type, Read read) {
  type.def("__getstate__", [](const Spec& spec) { return gnomon::to_json(spec); });
  type.def("__setstate__", [read](Spec& spec, const std::string& state) { new (&spec) Spec(read(state)); });
}

nb::list field_dicts(const std::vector<gnomon::FieldInfo>& fields) {
  nb::list result;
  for (const auto& field : fields) {
    nb::dict entry;
    entry["name"] = field.name;
    entry["type"] = field.type;
    entry["bound"] = field.bound;
    entry["doc"] = field.doc;
    entry["required"] = field.required;
    entry["default"] = field.default_value;
    result.append(entry);
  }
  return result;
}

nb::dict rule_dict(const gnomon::RuleInfo& info) {
  nb::dict result;
  result["kind"] = info.kind;
  result["name"] = info.name;
  result["summary"] = info.summary;
  result["formula"] = info.formula;
  result["citation"] = info.citation;
  result["in_transformers"] = info.in_transformers;
  result["numerics"] = info.numerics;
  result["fields"] = field_dicts(info.fields);
  result["common_fields"] = field_dicts(info.common_fields);
  result["example"] = info.example;
  return result;
}

/// The numbers of the paper, which need not be typed in.
void bind_of_heads(nb::class_<gnomon::bias::Alibi>& type) {
  type.def_static(
      "of_heads",
      [](std::int64_t heads, double bias_max, bool symmetric) {
        if (heads < 1) throw gnomon::Error(gnomon::ErrorCode::invalid_argument, fmt::format("heads: expected at least 1, got {}", heads));
        return gnomon::bias::Alibi::of_heads(heads, bias_max, symmetric);
      },
      "heads"_a, nb::kw_only(), "bias_max"_a = 8.0, "symmetric"_a = false,
      "With the slopes of the paper for so many heads, as its authors' code continues them beyond a power of two. bias_max: 8 in the "
      "paper; MPT can state another one. Raises Error.");
}

void bind_rules(nb::module_& module) {
  nb::module_ rotary = module.def_submodule("rotary", "Rotary rules: one class each, with the fields of its JSON.");
  gnomon::for_each_rotary_rule([&]<class Rule>(const Rule&) { bind_rule<Rule>(rotary); });
  nb::module_ absolute = module.def_submodule("absolute", "Absolute rules: one class each, with the fields of its JSON.");
  gnomon::for_each_absolute_rule([&]<class Rule>(const Rule&) { bind_rule<Rule>(absolute); });
  nb::module_ bias = module.def_submodule("bias", "Bias rules: one class each, with the fields of its JSON.");
  gnomon::for_each_bias_rule([&]<class Rule>(const Rule&) {
    auto type = bind_rule<Rule>(bias);
    type.def("to_json", [](const Rule& rule) { return gnomon::to_json(rule); }, "Canonical JSON: one flat, self-contained object.");
    if constexpr (std::is_same_v<Rule, gnomon::bias::Alibi>) bind_of_heads(type);
    make_picklable(type, [](const std::string& state) { return std::get<Rule>(gnomon::bias_from_json(state)); });
  });
  bias.def("from_json", &gnomon::bias_from_json, "text"_a, "Reads the canonical JSON of a bias rule, strictly. Raises Error.");
}

void bind_rotary_spec(nb::module_& module) {
  nb::class_<RotarySpec> rotary_spec(module, "RotarySpec",
                                     "A rotary position embedding: the rule that gives the frequencies, and where they are applied.");
  make_picklable(rotary_spec, gnomon::rotary_from_json);
  rotary_spec
      .def(
          "__init__",
          [](RotarySpec* self, const gnomon::RotaryRule& rule, std::optional<double> theta, int head_dim, std::optional<int> rotary_dim,
             int rotary_offset, std::string_view layout, std::optional<double> attention_factor, int axes, std::vector<int> sections,
             std::string_view section_order) {
            RotarySpec spec{rule,
                            theta.value_or(0),
                            head_dim,
                            rotary_dim.value_or(head_dim),
                            rotary_offset,
                            enum_argument<gnomon::PairLayout>("layout", layout),
                            attention_factor,
                            axes,
                            std::move(sections),
                            enum_argument<gnomon::SectionOrder>("section_order", section_order)};
            gnomon::validate(spec);
            new (self) RotarySpec(std::move(spec));
          },
          "rule"_a, nb::kw_only(), "theta"_a = nb::none(), "head_dim"_a, "rotary_dim"_a = nb::none(), "rotary_offset"_a = 0,
          "layout"_a = "half_split", "attention_factor"_a = nb::none(), "axes"_a = 1, "sections"_a = std::vector<int>{},
          "section_order"_a = "chunked",
          "theta is the base, left out for a rule without one. rotary_dim defaults to head_dim. attention_factor overrides the magnitude "
          "the "
          "rule implies. sections alone: pairs of each axis of an M-RoPE, shared out by section_order. axes > 1: frequencies begin anew "
          "for "
          "each axis (vision). Raises Error for what cannot be.")
      .def_static("from_json", &gnomon::rotary_from_json, "text"_a, "Reads the canonical JSON, strictly. Raises Error.")
      .def(
          "to_json", [](const RotarySpec& spec) { return gnomon::to_json(spec); }, "Canonical JSON: one flat, self-contained object.")
      .def_ro("rule", &RotarySpec::rule)
      .def_ro("theta", &RotarySpec::theta)
      .def_ro("head_dim", &RotarySpec::head_dim)
      .def_ro("rotary_dim", &RotarySpec::rotary_dim)
      .def_ro("rotary_offset", &RotarySpec::rotary_offset)
      .def_prop_ro("layout", [](const RotarySpec& spec) { return std::string(gnomon::enum_name(spec.layout)); })
      .def_prop_ro("attention_factor", &gnomon::effective_attention_factor, "The magnitude in effect.")
      .def_ro("axes", &RotarySpec::axes)
      .def_ro("sections", &RotarySpec::sections)
      .def_prop_ro("section_order", [](const RotarySpec& spec) { return std::string(gnomon::enum_name(spec.section_order)); })
      .def(
          "__eq__", [](const RotarySpec& a, const RotarySpec& b) { return a == b; }, nb::is_operator())
      .def("__repr__", [](const RotarySpec& spec) { return fmt::format("gnomon.RotarySpec.from_json('{}')", gnomon::to_json(spec)); });
}

void bind_absolute_spec(nb::module_& module) {
  nb::class_<AbsoluteSpec> absolute_spec(module, "AbsoluteSpec", "An absolute position embedding: rows of a width added to the input.");
  make_picklable(absolute_spec, gnomon::absolute_from_json);
  absolute_spec
      .def(
          "__init__",
          [](AbsoluteSpec* self, const gnomon::AbsoluteRule& rule, int width) {
            AbsoluteSpec spec{rule, width};
            gnomon::validate(spec);
            new (self) AbsoluteSpec(std::move(spec));
          },
          "rule"_a, nb::kw_only(), "width"_a, "width: the hidden size. Raises Error for what cannot be.")
      .def_static("from_json", &gnomon::absolute_from_json, "text"_a, "Reads the canonical JSON, strictly. Raises Error.")
      .def(
          "to_json", [](const AbsoluteSpec& spec) { return gnomon::to_json(spec); }, "Canonical JSON: one flat, self-contained object.")
      .def_ro("rule", &AbsoluteSpec::rule)
      .def_ro("width", &AbsoluteSpec::width)
      .def(
          "__eq__", [](const AbsoluteSpec& a, const AbsoluteSpec& b) { return a == b; }, nb::is_operator())
      .def("__repr__", [](const AbsoluteSpec& spec) { return fmt::format("gnomon.AbsoluteSpec.from_json('{}')", gnomon::to_json(spec)); });
}

}  // namespace

void bind_spec(nb::module_& module) {
  bind_rules(module);
  bind_rotary_spec(module);
  bind_absolute_spec(module);
  module.def(
      "list_rules",
      [] {
        nb::list rules;
        for (const auto& info : gnomon::list_rules()) rules.append(rule_dict(info));
        return rules;
      },
      "Every registered rule as a dict: kind, name, summary, formula, citation, in_transformers, numerics, fields, common_fields, "
      "example.");
}
