// SPDX-License-Identifier: Apache-2.0
// A main for compilers without libFuzzer: mutates the seeds a bounded number of times, or replays the files it is given. The input of a run
// that dies is left in fuzz-last-input.
//   hf_reader [--runs N] [--seed S]      hf_reader FILE...
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string_view>

#include "fuzz.hpp"

// Only a sanitizer has it.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace {

std::string last_input;

void save_last_input() { std::ofstream("fuzz-last-input", std::ios::binary) << last_input; }

void save_when_dying() {
  for (const int signal : {SIGABRT, SIGSEGV, SIGFPE}) {
    std::signal(signal, [](int number) {
      save_last_input();
      std::signal(number, SIG_DFL);
      std::raise(number);
    });
  }
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(save_last_input);
}

void run(const std::string& input) {
  last_input = input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::string next() {
    std::string input = pick(seeds_);
    for (std::size_t i = 1 + below(4); i > 0; i--) change(input);
    return input;
  }

 private:
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  const std::string& pick(const std::vector<std::string>& from) { return from[below(from.size())]; }

  void change(std::string& input) {
    if (input.empty()) input = pick(dictionary_);
    const std::size_t at = below(input.size() + 1), length = below(std::min<std::size_t>(input.size() - at, 16) + 1);
    switch (below(8)) {
      case 0:
        input.insert(at, pick(dictionary_));
        break;
      case 1:
        input.replace(at, length, pick(dictionary_));
        break;
      case 2:
        input.erase(at, length);
        break;
      case 3:
        input.insert(at, input.substr(at, length));
        break;
      case 4:
        input.resize(at);
        break;
      case 5:
        splice(input, at);
        break;
      case 6:  // where a JSON key may begin
        input.insert(std::min(input.find_first_of("{,", at), input.size() - 1) + 1, pick(dictionary_));
        break;
      default:
        if (at < input.size()) input[at] = static_cast<char>(random_());
        break;
    }
  }

  void splice(std::string& input, std::size_t at) {
    const std::string& other = pick(seeds_);
    input = input.substr(0, at) + other.substr(below(other.size()));
  }

  std::mt19937_64 random_;
  std::vector<std::string> seeds_ = fuzz_seeds(), dictionary_ = fuzz_dictionary();
};

}  // namespace

int main(int count, char** arguments) {
  save_when_dying();
  std::uint64_t runs = 20000, seed = 1;
  bool replayed = false;
  for (int i = 1; i < count; i++) {
    const std::string_view argument = arguments[i];
    if (argument == "--runs" && i + 1 < count) {
      runs = std::strtoull(arguments[++i], nullptr, 10);
    } else if (argument == "--seed" && i + 1 < count) {
      seed = std::strtoull(arguments[++i], nullptr, 10);
    } else {
      std::ifstream file(arguments[i], std::ios::binary);
      run({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
      replayed = true;
    }
  }
  if (replayed) return 0;
  for (const auto& input : fuzz_seeds()) run(input);
  Mutator mutator(seed);
  for (std::uint64_t i = 0; i < runs; i++) {
    run(mutator.next());
  }
  std::printf("%llu inputs\n", static_cast<unsigned long long>(runs));
}
