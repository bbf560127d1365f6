// SPDX-License-Identifier: Apache-2.0
#include "spec/strict_json.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gnomon/error.hpp"

namespace gnomon {
namespace {

using nlohmann::json;

// Builds the value from parser events, because a finished object no longer shows that a key stood twice.
class Builder final : public nlohmann::json_sax<json> {
 public:
  explicit Builder(std::string_view what) : what_(what) {}
  json take() { return std::move(root_); }

  bool null() override { return place(nullptr); }
  bool boolean(bool value) override { return place(value); }
  bool number_integer(number_integer_t value) override { return place(value); }
  bool number_unsigned(number_unsigned_t value) override { return place(value); }
  bool number_float(number_float_t value, const string_t&) override { return place(value); }
  bool string(string_t& value) override { return place(std::move(value)); }
  bool binary(binary_t&) override { refuse("binary values are not JSON"); }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (open_.back()->contains(name)) refuse("duplicate key \"" + path() + name + "\"");
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    std::string message = error.what();
    if (const auto end = message.find("] "); end != std::string::npos) message.erase(0, end + 2);  // the parser's own numbering
    // It quotes what it read last, which may be the very bytes that are not UTF-8.
    std::replace_if(message.begin(), message.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
    refuse("not valid JSON: " + message);
  }

 private:
  bool place(json value) {
    add(std::move(value));
    return true;
  }
  bool open(json value) {
    if (open_.size() == json_depth_limit) refuse("nested deeper than " + std::to_string(json_depth_limit) + " levels");
    keys_.push_back(open_.empty() || open_.back()->is_array() ? std::string() : key_);
    open_.push_back(&add(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }
  // Addresses stay good while they are on the stack: a container grows only after its last child was closed.
  json& add(json value) {
    if (open_.empty()) return root_ = std::move(value);
    json& parent = *open_.back();
    if (parent.is_array()) return parent.emplace_back(std::move(value));
    return parent[key_] = std::move(value);
  }
  std::string path() const {
    std::string result;
    for (const auto& name : keys_) {
      if (!name.empty()) result += name + ".";
    }
    return result;
  }
  [[noreturn]] void refuse(const std::string& message) const { throw Error(ErrorCode::malformed, std::string(what_) + ": " + message); }

  std::string_view what_;
  json root_;
  std::vector<json*> open_;
  std::vector<std::string> keys_;  // under which key each open container stands; empty at the top and in arrays
  std::string key_;
};

}  // namespace

json parse_strict(std::string_view text, std::string_view what) {
  Builder builder(what);
  json::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace gnomon
