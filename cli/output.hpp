// SPDX-License-Identifier: Apache-2.0
// Where results go: standard output, or a file that appears complete or not at all. Messages go to standard error.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace gnomon::cli {

/// A buffered writer. A write that fails, a full disk and a closed pipe among them, throws Error(io). Nothing counts as written
/// before finish(); without it a file is left as it was.
class Output {
 public:
  /// Standard output.
  Output();
  /// A file: written beside its place under a temporary name, then renamed. What is no regular file (a device, a pipe) is written directly.
  explicit Output(const std::string& path);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view bytes);
  template <class... Arguments>
  void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(fmt::appender(buffer_), format, std::forward<Arguments>(arguments)...);
    flush_when_large();
  }
  void finish();

 private:
  void open_temporary();
  void flush_when_large();
  void flush();
  [[noreturn]] void fail(std::string_view action) const;

  int file_ = -1;
  std::string path_;       // empty for standard output
  std::string temporary_;  // empty when written directly
  fmt::memory_buffer buffer_;
};

/// One line to standard error: "gnomon: " and the text.
void message(std::string_view text);

/// Whether standard output is a terminal.
bool on_terminal();

/// Columns of the terminal, or 100.
std::size_t line_width();

enum class Style { plain, label, good, note, warning, error };

/// The text with a colour around it, where standard output is a terminal and NO_COLOR is not set.
std::string styled(Style style, std::string_view text);

/// A line "label  text"; a long text continues under its beginning.
void labelled(Output& out, std::string_view label, std::string_view text);

/// Signals as the shell gave them to us, for a program that takes our place.
void ignore_write_signals();
void restore_write_signals();

}  // namespace gnomon::cli
