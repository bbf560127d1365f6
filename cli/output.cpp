// SPDX-License-Identifier: Apache-2.0
#include "output.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "gnomon/error.hpp"
#include "text.hpp"

namespace gnomon::cli {
namespace {

constexpr std::size_t buffer_limit = std::size_t{1} << 20;

// The temporary file that a signal must not leave behind. A handler may read nothing but this.
char temporary_to_remove[4096];
volatile std::sig_atomic_t temporary_exists = 0;

/// While it lives, signals that would end the program wait.
class SignalsWait {
 public:
  SignalsWait() {
    sigset_t ending;
    sigemptyset(&ending);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ending, signal);
    sigprocmask(SIG_BLOCK, &ending, &before_);
  }
  ~SignalsWait() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

 private:
  sigset_t before_{};
};

extern "C" void remove_temporary(int signal) {
  if (temporary_exists != 0) unlink(temporary_to_remove);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void guard(const std::string& temporary) {
  if (temporary.size() >= sizeof temporary_to_remove) return;
  std::memcpy(temporary_to_remove, temporary.c_str(), temporary.size() + 1);
  temporary_exists = 1;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    // A signal that is ignored (nohup) stays so.
    if (std::signal(signal, remove_temporary) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

/// The permissions open() would give a new file.
mode_t default_mode() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

bool colours() {
  static const bool wanted = [] {
    const char* no_color = std::getenv("NO_COLOR");
    const char* terminal = std::getenv("TERM");
    const bool dumb = terminal != nullptr && std::string_view(terminal) == "dumb";
    return on_terminal() && (no_color == nullptr || *no_color == '\0') && !dumb;
  }();
  return wanted;
}

}  // namespace

Output::Output() : file_(STDOUT_FILENO) {}

Output::Output(const std::string& path) : path_(path) {
  if (path.empty()) throw Misuse("--out: the file name is empty");
  struct stat status{};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) throw Misuse(fmt::format("--out: {} is a folder", printable(path)));
  if (exists && !S_ISREG(status.st_mode)) {
    file_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file_ < 0) fail("cannot open");
    return;
  }
  open_temporary();
  fchmod(file_, exists ? status.st_mode & 07777 : default_mode());
}

void Output::open_temporary() {
  std::error_code ignored;
  const auto real = std::filesystem::weakly_canonical(path_, ignored);  // a link keeps pointing at what it names
  if (!ignored && !real.empty()) path_ = real.string();
  temporary_ = path_ + ".XXXXXX";
  const SignalsWait until_guarded;  // one that came between the file and its guard would leave the file behind
  file_ = mkostemp(temporary_.data(), O_CLOEXEC);
  if (file_ < 0) {
    temporary_.clear();
    fail("cannot create");
  }
  guard(temporary_);
}

Output::~Output() {
  if (path_.empty()) return;
  if (file_ >= 0) close(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_exists = 0;
}

void Output::write(std::string_view bytes) {
  buffer_.append(bytes.data(), bytes.data() + bytes.size());
  flush_when_large();
}

void Output::flush_when_large() {
  if (buffer_.size() >= buffer_limit) flush();
}

void Output::flush() {
  std::size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t written = ::write(file_, buffer_.data() + done, buffer_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write");
    done += static_cast<std::size_t>(written);
  }
  buffer_.clear();
}

void Output::finish() {
  flush();
  if (path_.empty()) return;
  if (!temporary_.empty() && fsync(file_) != 0) fail("cannot write");
  const int file = file_;
  file_ = -1;
  if (close(file) != 0) fail("cannot write");
  if (temporary_.empty()) return;
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot replace");
  temporary_exists = 0;
  temporary_.clear();
}

void Output::fail(std::string_view action) const {
  const std::string reason = std::strerror(errno);
  throw Error(ErrorCode::io, fmt::format("{} {}: {}", action, path_.empty() ? "standard output" : printable(path_), reason));
}

void message(std::string_view text) {
  const std::string line = fmt::format("gnomon: {}\n", text);
  // Nothing can be done when even this fails.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

bool on_terminal() { return isatty(STDOUT_FILENO) == 1; }

std::size_t line_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) return size.ws_col;
  return 100;
}

std::string styled(Style style, std::string_view text) {
  constexpr std::string_view codes[] = {"", "\033[2m", "\033[32m", "\033[36m", "\033[33m", "\033[1;31m"};
  if (style == Style::plain || !colours()) return std::string(text);
  return fmt::format("{}{}\033[0m", codes[static_cast<std::size_t>(style)], text);
}

void ignore_write_signals() {
  // A closed pipe or a file that may not grow is then an error of write(), with a message and nothing left behind.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void labelled(Output& out, std::string_view label, std::string_view text) {
  constexpr std::size_t width = 12;
  out.print("{}{}\n", styled(Style::label, fmt::format("{:<{}}", label, width)), wrapped(text, line_width(), width));
}

void restore_write_signals() {
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_DFL);
}

}  // namespace gnomon::cli
