// SPDX-License-Identifier: Apache-2.0
// gnomon version: what runs here.
#include <memory>

#include "gnomon/rotate.hpp"
#include "output.hpp"
#include "text.hpp"
#include "verbs.hpp"

#ifndef GNOMON_VERSION
#define GNOMON_VERSION "unknown"
#endif

namespace gnomon::cli {
namespace {

constexpr std::string_view compiler =
#if defined(__clang__)
    "Clang " __clang_version__;
#elif defined(__GNUC__)
    "GCC " __VERSION__;
#else
    "unknown";
#endif

}  // namespace

std::string version_line() { return fmt::format("gnomon {} · kernels {} · {}", GNOMON_VERSION, kernel_target(), compiler); }

Verb add_version(CLI::App& root) {
  auto* app = root.add_subcommand("version", "Version, the CPU target whose kernels run, and the compiler");
  const auto json = std::make_shared<bool>(false);
  app->add_flag("--json", *json, "Print one JSON object");
  app->footer("Examples:\n  gnomon version\n  gnomon version --json");
  return {app, [json] {
            Output out;
            if (*json) {
              out.print("{{\"schema\": 1, \"version\": {}, \"kernel_target\": {}, \"compiler\": {}}}\n", json_quote(GNOMON_VERSION),
                        json_quote(kernel_target()), json_quote(compiler));
            } else {
              out.print("{}\n", version_line());
            }
            out.finish();
            return 0;
          }};
}

}  // namespace gnomon::cli
