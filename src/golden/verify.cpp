// SPDX-License-Identifier: Apache-2.0
// Values against a golden file: first as they are, then under every known mistake. Layout and magnitude are told apart from the angles, so
// that a mistake in one does not hide a mistake in another.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>

#include "golden/mistakes.hpp"
#include "plan/round.hpp"
#include "spec/fields.hpp"

namespace gnomon {
namespace {

constexpr std::size_t most_rows_for_mistakes = 32;

/// How exactly values are given.
struct Precision {
  std::string name;
  double tolerance;  ///< of cos and sin
  double frequency;  ///< relative, of frequencies, which nobody stores in 16 bits on purpose
  double angle;      ///< by how much of itself an angle may be off under any hypothesis: engines multiply in float32, or in double
};
constexpr double float32_angle = 0x1p-22, double_angle = 0x1p-50;

/// Significant decimal digits of the shortest text that reads back to the same double.
int digits_of(double value) {
  const std::string shortest = fmt::format("{}", value), digits = shortest.substr(0, shortest.find('e'));
  const auto first = digits.find_first_of("123456789");
  if (first == std::string::npos) return 0;
  return static_cast<int>(
      std::count_if(digits.begin() + static_cast<std::ptrdiff_t>(first), digits.end(), [](char c) { return c >= '0' && c <= '9'; }));
}

template <class Type>
bool all_are(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return static_cast<double>(widen(round<Type>(value))) == value; });
}

/// The narrowest type that holds all the values; for decimals of few digits, what those leave open, but little: a short list of round
/// numbers has few digits, too.
Precision precision_of(std::span<const double> values) {
  if (all_are<Bf16>(values)) return {"bf16", 0x1p-7, 0x1p-22, float32_angle};
  if (all_are<F16>(values)) return {"f16", 0x1p-10, 0x1p-22, float32_angle};
  if (all_are<float>(values)) return {"f32", 0x1p-23, 0x1p-22, float32_angle};
  int digits = 0;
  for (const double value : values) {
    digits = std::max(digits, digits_of(value));
    if (digits > 9) return {"f64", 1e-12, 1e-12, double_angle};
  }
  const double open = std::clamp(5 * std::pow(10, -digits), 0x1p-22, 5e-5);
  return {fmt::format("{} digits", digits), open, open, float32_angle};
}

/// Values as cos and sin of (row, pair), magnitude and all, under one layout.
struct Reading {
  std::optional<PairLayout> layout;  ///< where the values show one
  std::size_t pairs = 0;
  std::vector<double> cos, sin;
};

std::vector<double> half_of(const std::vector<double>& full, std::size_t width, PairLayout layout) {
  std::vector<double> half;
  for (std::size_t i = 0; i < full.size(); i++) {
    const std::size_t channel = i % width;
    if (layout == PairLayout::half_split ? channel < width / 2 : channel % 2 == 0) half.push_back(full[i]);
  }
  return half;
}

/// Whether every value of a row stands there twice, as the layout pairs channels.
bool repeats(const std::vector<double>& full, std::size_t width, PairLayout layout) {
  if (width % 2 != 0) return false;
  for (std::size_t i = 0; i < full.size(); i++) {
    const std::size_t channel = i % width;
    const std::size_t twin = layout == PairLayout::half_split ? (channel + width / 2) % width : channel ^ 1;
    if (full[i] != full[i - channel + twin]) return false;
  }
  return true;
}

Reading table_reading(const Values& values, const Golden& golden) {
  const std::size_t pairs = golden.exact.inv_freq.size(), width = values.width;
  if (values.sin.size() != values.cos.size() || values.cos.size() != values.rows * width || width == 0) {
    throw Error(ErrorCode::invalid_argument, "values: cos and sin must have one shape, (positions, pairs)");
  }
  if (width != pairs) {
    const auto other = golden.spec.layout == PairLayout::half_split ? PairLayout::interleaved : PairLayout::half_split;
    for (const auto layout : {golden.spec.layout, other}) {
      if (!repeats(values.cos, width, layout) || !repeats(values.sin, width, layout)) continue;
      return {layout, width / 2, half_of(values.cos, width, layout), half_of(values.sin, width, layout)};
    }
  }
  return {std::nullopt, width, values.cos, values.sin};
}

/// cos and sin of each pair from a vector before and after: (a, b) -> (a cos - b sin, b cos + a sin).
Reading rotated_reading(const Values& values, const Golden& golden, PairLayout layout) {
  const auto& spec = golden.spec;
  const auto pairs = static_cast<std::size_t>(spec.rotary_dim / 2);
  Reading reading{layout, pairs, {}, {}};
  for (std::size_t row = 0; row < values.rows; row++) {
    const double* after = values.rotated.data() + row * values.width;
    for (std::size_t i = 0; i < pairs; i++) {
      const bool half_split = layout == PairLayout::half_split;
      const auto first = static_cast<std::size_t>(spec.rotary_offset) + (half_split ? i : 2 * i), second = first + (half_split ? pairs : 1);
      const double a = values.input[first], b = values.input[second], square = a * a + b * b;
      if (square == 0) throw Error(ErrorCode::invalid_argument, fmt::format("input: pair {} is zero, which shows no rotation", i));
      reading.cos.push_back((a * after[first] + b * after[second]) / square);
      reading.sin.push_back((a * after[second] - b * after[first]) / square);
    }
  }
  return reading;
}

std::vector<Reading> readings_of(const Values& values, const Golden& golden) {
  if (!values.cos.empty() || !values.sin.empty()) return {table_reading(values, golden)};
  if (values.rotated.empty()) return {};
  const auto head_dim = static_cast<std::size_t>(golden.spec.head_dim);
  if (values.width != head_dim || values.input.size() != head_dim || values.rotated.size() != values.rows * head_dim) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("input: expected head_dim {} numbers, and as many in every row of rotated, got {} and {}", head_dim,
                            values.input.size(), values.width));
  }
  const auto own = golden.spec.layout, other = own == PairLayout::half_split ? PairLayout::interleaved : PairLayout::half_split;
  return {rotated_reading(values, golden, own), rotated_reading(values, golden, other)};
}

/// A row of the values and the row of the golden file for the same position.
struct Row {
  std::size_t ours, golden;
};

std::vector<Row> matching_rows(const Values& values, const Golden& golden) {
  std::vector<Row> rows;
  if (values.rows == 0) return rows;
  const auto& positions = values.positions.empty() ? golden.positions : values.positions;
  if (positions.size() != values.rows) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("positions: the values have {} rows and {} positions{}", values.rows, positions.size(),
                            values.positions.empty() ? " (those of the golden file; say which positions the rows stand for)" : ""));
  }
  std::map<std::int64_t, std::size_t> place;
  for (std::size_t i = 0; i < golden.positions.size(); i++) place[golden.positions[i]] = i;
  for (std::size_t i = 0; i < positions.size(); i++) {
    if (const auto found = place.find(positions[i]); found != place.end()) rows.push_back({i, found->second});
  }
  if (rows.empty()) throw Error(ErrorCode::invalid_argument, "positions: none of them is in the golden file");
  return rows;
}

/// What is compared: one reading of the values, at the rows both sides have.
struct Comparison {
  const Values& values;
  const Golden& golden;
  const Reading* reading;  ///< none where there are frequencies only
  std::vector<Row> rows;
  double magnitude = 1;  ///< measured on cos and sin
  double tolerance = 0, angle = 0;
  double frequency_tolerance = 0;

  std::size_t pairs() const { return reading != nullptr ? reading->pairs : values.inv_freq.size(); }
};

struct Residual {
  bool fits = true;
  double largest = 0;  ///< of cos and sin, else relative, of frequencies
  double excess = 0;   ///< the largest in units of what is allowed
  Deviation worst;
};

void take(Residual& residual, double got, double expected, double size, double allowed, const Deviation& place) {
  const double difference = std::abs(got - expected);
  residual.largest = std::max(residual.largest, difference / size);
  if (!(difference <= allowed)) residual.fits = false;
  if (const double excess = difference / allowed; !(excess <= residual.excess)) {
    residual.excess = excess;
    residual.worst = place;
    residual.worst.got = got, residual.worst.expected = expected;
  }
}

/// The values against numbers whose row k is for c.rows[k], or for the golden row where the numbers are those of the file.
Residual compare(const Comparison& c, const GoldenNumbers& numbers, bool of_file, double angle) {
  Residual residual;
  for (std::size_t i = 0; i < c.values.inv_freq.size(); i++) {
    const double w = numbers.inv_freq[i], size = w == 0 ? 1 : w;
    take(residual, c.values.inv_freq[i], w, size, c.frequency_tolerance * size, {"inv_freq", 0, i, 0, 0});
  }
  if (c.reading == nullptr) return residual;
  residual.largest = 0;
  for (std::size_t k = 0; k < c.rows.size(); k++) {
    const auto position = c.golden.positions[c.rows[k].golden];
    for (std::size_t i = 0; i < c.pairs(); i++) {
      const std::size_t at = (of_file ? c.rows[k].golden : k) * c.pairs() + i, ours = c.rows[k].ours * c.pairs() + i;
      const double allowed = c.magnitude * (c.tolerance + angle * std::abs(static_cast<double>(position)) * numbers.inv_freq[i]);
      take(residual, c.reading->cos[ours], c.magnitude * numbers.cos[at], 1, allowed, {"cos", position, i, 0, 0});
      take(residual, c.reading->sin[ours], c.magnitude * numbers.sin[at], 1, allowed, {"sin", position, i, 0, 0});
    }
  }
  return residual;
}

bool same_shape(const Comparison& c, std::size_t pairs) {
  return c.pairs() == pairs && (c.values.inv_freq.empty() || c.values.inv_freq.size() == pairs);
}

// The magnitude.

bool near(double a, double b, double tolerance) { return std::abs(a - b) <= 2 * tolerance * b; }

/// The length of the vectors (cos, sin) where all have one, else 1: then they are compared as they are.
double measured_magnitude(const Comparison& c) {
  double low = HUGE_VAL, high = 0, sum = 0;
  for (const auto& row : c.rows) {
    for (std::size_t i = 0; i < c.pairs(); i++) {
      const std::size_t at = row.ours * c.pairs() + i;
      const double length = std::hypot(c.reading->cos[at], c.reading->sin[at]);
      low = std::min(low, length), high = std::max(high, length), sum += length;
    }
  }
  const double mean = sum / static_cast<double>(c.rows.size() * c.pairs());
  if (!(low > 0) || high - low > 8 * c.tolerance * mean) return 1;
  for (const double likely : {1.0, c.golden.attention_factor}) {
    if (near(mean, likely, c.tolerance)) return likely;
  }
  return mean;
}

/// Whether the magnitude has to be there: somebody stated one, or a vector was rotated.
bool states_magnitude(const Values& values) { return values.attention_factor || !values.rotated.empty(); }

double total_magnitude(const Comparison& c) { return c.magnitude * c.values.attention_factor.value_or(1); }

/// What is wrong with the magnitude, where `expected` is the right one under the explanation at hand.
std::optional<Mistake> magnitude_mistake_in(const Comparison& c, double expected) {
  if (c.reading == nullptr && !c.values.attention_factor) return std::nullopt;
  const double tolerance = std::max(c.tolerance, 0x1p-22), total = total_magnitude(c), own = c.golden.attention_factor;
  if (near(total, expected, tolerance) || near(total, own, tolerance)) return std::nullopt;
  if (!states_magnitude(c.values) && near(total, 1, tolerance)) return std::nullopt;
  const std::string found = fmt::format("{:.9g} instead of {:.9g}", total, own);
  for (const auto& hypothesis : magnitude_hypotheses()) {
    const double magnitude = hypothesis.magnitude(c.golden);
    if (near(total, magnitude, tolerance)) return Mistake{std::string(hypothesis.name), found, std::string(hypothesis.cause)};
  }
  return Mistake{std::string(magnitude_mistake.name), found, std::string(magnitude_mistake.cause)};
}

// Explanations.

/// A comparison at a bounded number of rows: the first, others spread over the rest, and the worst.
Comparison at_few_rows(const Comparison& all, const std::optional<Deviation>& worst) {
  Comparison few = all;
  if (all.rows.size() <= most_rows_for_mistakes) return few;
  few.rows.clear();
  const std::size_t first = most_rows_for_mistakes / 2, last = most_rows_for_mistakes - 1;
  for (std::size_t k = 0; k < first; k++) few.rows.push_back(all.rows[k]);
  for (std::size_t k = first; k <= last; k++) {
    few.rows.push_back(all.rows[first + (k - first) * (all.rows.size() - 1 - first) / (last - first)]);
  }
  for (const auto& row : all.rows) {
    if (worst && worst->value != "inv_freq" && all.golden.positions[row.golden] == worst->position) few.rows.push_back(row);
  }
  return few;
}

/// The frequencies of the values: stated, or the angle between two neighbouring positions, which is below half a turn.
std::vector<double> frequencies_in(const Comparison& c) {
  if (!c.values.inv_freq.empty()) return c.values.inv_freq;
  if (c.reading == nullptr) return {};
  const auto angle = [&](const Row& row, std::size_t i) {
    return std::atan2(c.reading->sin[row.ours * c.pairs() + i], c.reading->cos[row.ours * c.pairs() + i]);
  };
  std::map<std::int64_t, Row> row_of;
  for (const auto& row : c.rows) row_of.emplace(c.golden.positions[row.golden], row);
  for (const auto& [position, row] : row_of) {
    const auto next = row_of.find(position + 1);
    if (next == row_of.end()) continue;
    std::vector<double> found;
    for (std::size_t i = 0; i < c.pairs(); i++) {
      // From position 0 the second angle alone, which is exact for slow pairs too.
      const double turned = position == 0 ? angle(next->second, i) : angle(next->second, i) - angle(row, i);
      found.push_back(std::abs(std::remainder(turned, 2 * 3.14159265358979323846)));
    }
    return found;
  }
  return {};
}

Case case_of(const Comparison& c) {
  Case result{c.golden, {}, frequencies_in(c)};
  for (const auto& row : c.rows) result.positions.push_back(c.golden.positions[row.golden]);
  if (c.reading == nullptr) result.positions.clear();
  return result;
}

std::vector<Suspect> suspects_of(const Hypothesis& hypothesis, const Case& subject) {
  try {
    return hypothesis.suspects(subject);
  } catch (const Error&) {  // numbers that this hypothesis does not have
    return {};
  }
}

/// Whether two hypotheses say the same, as far as the values could tell.
bool alike(const Comparison& c, const GoldenNumbers& a, const GoldenNumbers& b) {
  if (a.inv_freq.size() != b.inv_freq.size()) return false;
  for (std::size_t i = 0; i < a.inv_freq.size(); i++) {
    if (std::abs(a.inv_freq[i] - b.inv_freq[i]) > 1e-5 * a.inv_freq[i]) return false;
  }
  for (std::size_t at = 0; at < a.cos.size(); at++) {
    const double position = std::abs(static_cast<double>(c.golden.positions[c.rows[at / c.pairs()].golden]));
    const double allowed = 2 * c.tolerance + 1e-5 * position * a.inv_freq[at % c.pairs()];
    if (std::abs(a.cos[at] - b.cos[at]) > allowed || std::abs(a.sin[at] - b.sin[at]) > allowed) return false;
  }
  return true;
}

/// How far from simple a hypothesis is: 0 without a fitted parameter, 1 with a round one, 2 and 3 with others.
int rank(const Suspect& suspect) { return suspect.digits == 0 ? 0 : suspect.digits <= 3 ? 1 : suspect.digits <= 6 ? 2 : 3; }

struct Fit {
  std::string_view name, cause;
  Suspect suspect;
  double residual;
};

/// Adds a hypothesis that fits, unless a simpler one says the same; drops those that say the same less simply.
void add_fit(std::vector<Fit>& fits, const Comparison& c, Fit fit) {
  const auto same = [&](const Fit& other) { return alike(c, other.suspect.numbers, fit.suspect.numbers); };
  if (std::any_of(fits.begin(), fits.end(), [&](const Fit& other) { return rank(other.suspect) < rank(fit.suspect) && same(other); }))
    return;
  std::erase_if(fits, [&](const Fit& other) { return rank(other.suspect) > rank(fit.suspect) && same(other); });
  fits.push_back(std::move(fit));
}

/// The suspect of a mistake that fits: the first, where a parameter was fitted and the roundest stands first, else the nearest.
std::optional<Fit> fit_of(const Hypothesis& hypothesis, const Case& subject, const Comparison& c, double angle) {
  std::optional<Fit> best;
  for (auto& made : suspects_of(hypothesis, subject)) {
    if (!same_shape(c, made.numbers.inv_freq.size())) continue;
    const auto residual = compare(c, made.numbers, false, angle);
    if (!residual.fits || (best && residual.largest >= best->residual)) continue;
    best = Fit{hypothesis.name, hypothesis.cause, std::move(made), residual.largest};
    if (best->suspect.digits > 0) break;
  }
  return best;
}

/// Every mistake that fits. Where float32 angles are all that is wrong, anything else has to fit better than they do.
std::vector<Explanation> angle_explanations(const Comparison& c, const GoldenNumbers& right) {
  const bool angles_only = same_shape(c, right.inv_freq.size()) && compare(c, right, true, c.angle).fits;
  std::vector<Fit> fits;
  const Case subject = case_of(c);
  for (const auto& hypothesis : hypotheses()) {
    const bool is_first = &hypothesis == hypotheses().data();
    if (auto fit = fit_of(hypothesis, subject, c, angles_only && !is_first ? 0 : c.angle)) add_fit(fits, c, std::move(*fit));
  }
  std::vector<Explanation> result;
  for (const auto& fit : fits) {
    Explanation found{{{std::string(fit.name), fit.suspect.found, std::string(fit.cause)}}, fit.residual};
    if (auto magnitude = magnitude_mistake_in(c, fit.suspect.attention_factor)) found.mistakes.push_back(*magnitude);
    result.push_back(std::move(found));
  }
  return result;
}

void keep_the_best(std::vector<Explanation>& explanations, double tolerance) {
  const auto simpler = [](const Explanation& a, const Explanation& b) { return a.mistakes.size() < b.mistakes.size(); };
  std::stable_sort(explanations.begin(), explanations.end(), simpler);
  if (explanations.empty()) return;
  double best = HUGE_VAL;
  for (const auto& explanation : explanations) best = std::min(best, explanation.residual);
  std::erase_if(explanations, [&](const Explanation& explanation) { return explanation.residual > 2 * best + tolerance; });
}

std::optional<Mistake> layout_mistake_in(const Comparison& c) {
  if (c.reading == nullptr || !c.reading->layout || *c.reading->layout == c.golden.spec.layout) return std::nullopt;
  return Mistake{std::string(layout_mistake.name),
                 fmt::format("{} instead of {}", enum_name(*c.reading->layout), enum_name(c.golden.spec.layout)),
                 std::string(layout_mistake.cause)};
}

/// What explains one reading; empty where it agrees (`agrees`), and where nothing does.
struct Finding {
  bool agrees = false;
  std::optional<Deviation> worst;
  std::vector<Explanation> explanations;
};

Finding look_at(const Comparison& c, const GoldenNumbers& right) {
  Finding finding;
  const auto layout = layout_mistake_in(c);
  if (same_shape(c, right.inv_freq.size())) {
    const auto residual = compare(c, right, true, c.angle == double_angle ? double_angle : 0);
    finding.worst = residual.worst;
    const auto magnitude = magnitude_mistake_in(c, c.golden.attention_factor);
    finding.agrees = residual.fits && !magnitude && !layout;
    if (residual.fits && (magnitude || layout)) {
      finding.explanations.push_back({{}, residual.largest});
      if (magnitude) finding.explanations.front().mistakes.push_back(*magnitude);
    }
    if (residual.fits && finding.explanations.empty()) return finding;
  }
  if (finding.explanations.empty()) finding.explanations = angle_explanations(at_few_rows(c, finding.worst), right);
  if (layout) {
    for (auto& explanation : finding.explanations) explanation.mistakes.push_back(*layout);
  }
  keep_the_best(finding.explanations, c.tolerance);
  return finding;
}

/// What the first reading that is explained says, or the first of all.
Finding finding_of(Comparison c, const std::vector<Reading>& readings, const GoldenNumbers& right) {
  if (readings.empty()) return look_at(c, right);
  std::optional<Finding> result;
  for (const auto& reading : readings) {
    c.reading = &reading;
    c.magnitude = measured_magnitude(c);
    auto finding = look_at(c, right);
    if (!result) {
      result = std::move(finding);
    } else {
      result->explanations = std::move(finding.explanations);
    }
    if (result->agrees || !result->explanations.empty()) break;
  }
  return *result;
}

/// Right numbers, held to the float32 ones: whatever else would seem to explain them is only near.
void recognise_exact_numbers(const Comparison& c, const std::vector<Reading>& readings, Finding& finding) {
  const auto held_to_exact = finding_of(c, readings, c.golden.exact);
  if (!held_to_exact.agrees) return;
  const Mistake mistake{std::string(exact_numbers.name), "they agree with the exact numbers", std::string(exact_numbers.cause)};
  const double residual = held_to_exact.worst ? std::abs(held_to_exact.worst->got - held_to_exact.worst->expected) : 0;
  finding.explanations = {{{mistake}, residual}};
}

/// Where float32 angles are all that is wrong, the other numbers of the file tell more.
bool is_float32_alone(const Finding& finding) {
  const auto& found = finding.explanations;
  return !found.empty() && found.front().mistakes.size() == 1 && found.front().mistakes.front().name == hypotheses().front().name;
}

std::vector<std::string> notes_on(const Comparison& c) {
  std::vector<std::string> notes;
  const std::size_t pairs = c.golden.exact.inv_freq.size(), left_out = c.values.rows - c.rows.size();
  if (!same_shape(c, pairs)) notes.push_back(fmt::format("the values have {} pairs, the golden file {}", c.pairs(), pairs));
  if (left_out > 0)
    notes.push_back(fmt::format("{} of {} rows are at positions that the golden file does not have", left_out, c.values.rows));
  const double magnitude = c.golden.attention_factor;
  if (magnitude != 1 && c.reading != nullptr && !states_magnitude(c.values) && measured_magnitude(c) == 1) {
    notes.push_back(fmt::format("cos and sin come without the magnitude {}, which belongs on them once", magnitude));
  }
  return notes;
}

void check_arguments(const Values& values, const Golden& golden, Numerics numerics, std::optional<double> tolerance) {
  if (values.inv_freq.empty() && values.cos.empty() && values.rotated.empty()) {
    throw Error(ErrorCode::invalid_argument, "values: expected inv_freq, cos and sin, or input and rotated; got none of them");
  }
  if (numerics == Numerics::hf && !golden.hf) {
    throw Error(ErrorCode::unsupported, "numerics: the golden file has no hf numbers; transformers has no such rule");
  }
  if (tolerance && !(*tolerance > 0)) throw Error(ErrorCode::invalid_argument, "tolerance: expected a positive number");
}

}  // namespace

Verification verify(const Values& values, const Golden& golden, Numerics numerics, std::optional<double> tolerance) {
  check_arguments(values, golden, numerics, tolerance);
  const auto readings = readings_of(values, golden);
  const bool vectors = !values.rotated.empty();
  const Precision precision = precision_of(vectors ? values.rotated : readings.empty() ? values.inv_freq : values.cos);
  Comparison c{values, golden, readings.empty() ? nullptr : &readings.front(), matching_rows(values, golden)};
  c.angle = precision.angle;
  // A rotated vector has two products and a sum, and is divided by its length.
  c.tolerance = tolerance.value_or(precision.tolerance * (vectors ? 4 : 1));
  c.frequency_tolerance = tolerance.value_or(values.inv_freq.empty() ? 0 : precision_of(values.inv_freq).frequency);

  auto finding = finding_of(c, readings, numerics == Numerics::hf ? *golden.hf : golden.exact);
  if (numerics == Numerics::hf && !finding.agrees) recognise_exact_numbers(c, readings, finding);
  Verification result;
  result.agrees = finding.agrees;
  result.numerics = numerics;
  result.precision = precision.name;
  result.tolerance = readings.empty() ? c.frequency_tolerance : c.tolerance;
  result.positions = c.rows.size();
  result.notes = notes_on(c);
  if (numerics == Numerics::exact && golden.hf && is_float32_alone(finding)) {
    result.notes.push_back("--numerics hf holds values to the float32 numbers of the transformers library");
  }
  result.worst = std::move(finding.worst);
  result.explanations = std::move(finding.explanations);
  return result;
}

}  // namespace gnomon
