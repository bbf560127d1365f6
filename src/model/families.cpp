// SPDX-License-Identifier: Apache-2.0
#include "model/families.hpp"

#include <algorithm>
#include <iterator>

namespace gnomon::files {
namespace {

const std::vector<Family>& families() {
  static const std::vector<Family> table = [] {
    std::vector<Family> all;
    for (const auto group :
         {llama_families, mistral_families, qwen_families, gemma_families, phi_families, gpt_families, deepseek_families, glm_families,
          alternating_families, hybrid_families, alibi_families, encoder_families, encoder_decoder_families, vision_families}) {
      auto some = group();
      std::move(some.begin(), some.end(), std::back_inserter(all));
    }
    return all;
  }();
  return table;
}

template <class Predicate>
const Family* find_family(Predicate matches) {
  const auto found = std::find_if(families().begin(), families().end(), matches);
  return found == families().end() ? nullptr : &*found;
}

bool contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

const Family* family_of_model_type(std::string_view model_type) {
  return find_family([&](const Family& family) { return contains(family.model_types, model_type); });
}

const Family* family_of_class(std::string_view class_name) {
  return find_family([&](const Family& family) { return !family.class_prefix.empty() && class_name.starts_with(family.class_prefix); });
}

const Family* family_of_architecture(std::string_view architecture) {
  return find_family([&](const Family& family) { return contains(family.architectures, architecture); });
}

const Family* family_of_tower(std::string_view model_type) {
  return find_family([&](const Family& family) { return contains(family.tower_of, model_type); });
}

}  // namespace gnomon::files
