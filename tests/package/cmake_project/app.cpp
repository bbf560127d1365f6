// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <gnomon/gnomon.hpp>
#include <iostream>

int main() try {
  const gnomon::RotarySpec spec{.rule = gnomon::rotary::Linear{.factor = 4}, .theta = 10000, .head_dim = 4, .rotary_dim = 4};
  const auto frequencies = gnomon::frequencies(spec);

  std::array<float, 4> key{1, 2, 3, 4};
  const gnomon::TensorView keys{.data = key.data(), .dtype = gnomon::DType::f32, .shape = {1, 1, 1, 4}, .strides = {4, 4, 4, 1}};
  gnomon::rotate(keys, frequencies, gnomon::Range{1'000'000, 1'000'001});

  std::cout.precision(9);
  for (const float value : key) std::cout << "rotated " << value << '\n';
} catch (const gnomon::Error& error) {
  std::cerr << "gnomon: " << error.what() << '\n';
  return 1;
}
