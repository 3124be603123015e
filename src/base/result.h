#pragma once

#include <fmt/core.h>

#include <expected>
#include <string>
#include <utility>

namespace nibble {

// What a caller can do about a failure; the message says what happened.
enum class ErrorKind {
  kBadInput,   // a file, flag or request is wrong: CLI exit code 2, HTTP 4xx
  kNoRoom,     // would not fit in memory or in a bounded queue: exit code 2, HTTP 429/503
  kIo,         // the operating system or the network refused: exit code 1
  kCancelled,  // the user asked to stop
};

// A message names the place (file, field), what was expected and what was found.
struct Error {
  ErrorKind kind = ErrorKind::kBadInput;
  std::string message;
};

template <class T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

template <class... Args>
std::unexpected<Error> Fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(Error{kind, fmt::format(format, std::forward<Args>(args)...)});
}

template <class... Args>
std::unexpected<Error> BadInput(fmt::format_string<Args...> format, Args&&... args) {
  return Fail(ErrorKind::kBadInput, format, std::forward<Args>(args)...);
}

template <class... Args>
std::unexpected<Error> IoError(fmt::format_string<Args...> format, Args&&... args) {
  return Fail(ErrorKind::kIo, format, std::forward<Args>(args)...);
}

// Puts a place in front of an error on its way up: "model.gguf: tensor 'x': ...".
inline std::unexpected<Error> Within(const std::string& place, Error error) {
  error.message = place + ": " + error.message;
  return std::unexpected(std::move(error));
}

}  // namespace nibble

// NIBBLE_TRY(auto x, Foo()): x = value of Foo(), or return its error from this function.
#define NIBBLE_CONCAT_INNER(a, b) a##b
#define NIBBLE_CONCAT(a, b) NIBBLE_CONCAT_INNER(a, b)
#define NIBBLE_TRY(declaration, expression) \
  NIBBLE_TRY_IMPL(NIBBLE_CONCAT(nibble_try_, __LINE__), declaration, expression)
#define NIBBLE_TRY_IMPL(temporary, declaration, expression)             \
  auto temporary = (expression);                                        \
  if (!temporary) return std::unexpected(std::move(temporary).error()); \
  declaration = *std::move(temporary) /* NOLINT(bugprone-macro-parentheses) */

// NIBBLE_RETURN_IF_ERROR(Foo()): for a Status.
#define NIBBLE_RETURN_IF_ERROR(expression)                                        \
  do {                                                                            \
    auto nibble_status = (expression);                                            \
    if (!nibble_status) return std::unexpected(std::move(nibble_status).error()); \
  } while (false)
